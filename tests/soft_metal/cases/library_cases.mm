// Libraries from files and from source, pipelines, binary archives.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "soft_case.h"

namespace {

// A name in a new folder, both gone with it.
class TemporaryPath {
 public:
  TemporaryPath() { path_ = std::string(mkdtemp(folder_)) + "/file"; }
  ~TemporaryPath() {
    unlink(path_.c_str());
    rmdir(folder_);
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  NSURL* url() const { return [NSURL fileURLWithPath:[NSString stringWithUTF8String:path_.c_str()]]; }

 private:
  char folder_[40] = "/tmp/soft-metal-case-XXXXXX";
  std::string path_;
};

id<MTLLibrary> from_source(Soft& soft, NSString* source, NSError** error, MTLCompileOptions* options = nil) {
  return soft.own([soft.device() newLibraryWithSource:source options:options error:error]);
}

std::string source_error(Soft& soft, NSString* source) {
  NSError* error = nil;
  CHECK(from_source(soft, source, &error) == nil);
  CHECK([error.domain isEqualToString:MTLLibraryErrorDomain]);
  CHECK_EQ(error.code, NSInteger(MTLLibraryErrorCompileFailure));
  return [[error localizedDescription] UTF8String];
}

MTLComputePipelineDescriptor* descriptor_of(Soft& soft, NSString* name) {
  MTLComputePipelineDescriptor* descriptor = soft.own([[MTLComputePipelineDescriptor alloc] init]);
  descriptor.computeFunction = soft.own([soft.library() newFunctionWithName:name]);
  descriptor.label = name;
  return descriptor;
}

id<MTLComputePipelineState> compile(Soft& soft, MTLComputePipelineDescriptor* descriptor,
                                    MTLPipelineOption options, NSError** error) {
  return soft.own([soft.device() newComputePipelineStateWithDescriptor:descriptor
                                                               options:options
                                                            reflection:nullptr
                                                                 error:error]);
}

}  // namespace

NATIVE_TEST(soft_library_file) {
  keeps([](Soft& soft) {
    const TemporaryPath path;
    NSError* error = nil;
    CHECK([soft.device() newLibraryWithURL:path.url() error:&error] == nil);
    CHECK_EQ(error.code, NSInteger(MTLLibraryErrorFileNotFound));
    path.write("MTLB");
    CHECK([soft.device() newLibraryWithURL:path.url() error:&error] == nil);
    CHECK_EQ(error.code, NSInteger(MTLLibraryErrorUnsupported));
    path.write("soft metallib 1\nadd\nnot_there\n");
    id<MTLLibrary> library = soft.own([soft.device() newLibraryWithURL:path.url() error:&error]);
    CHECK_EQ([library.functionNames count], 2u);
    id<MTLFunction> function = soft.own([library newFunctionWithName:@"not_there"]);
    CHECK([soft.device() newComputePipelineStateWithFunction:function error:&error] == nil);
    CHECK([[error localizedDescription] hasPrefix:@"not_there: there is no reference kernel"]);
  });
}

NATIVE_TEST(soft_library_from_source) {
  keeps([](Soft& soft) {
    NSError* error = nil;
    NSString* source = @"#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"
                        "#define INSTANCE(op, type) \\\n  template [[host_name(#op \"_\" #type)]] kernel "
                        "decltype(op<type>) op<type>;\n"
                        "// kernel void in_a_comment() {}\n"
                        "constant char* text = \"} kernel void in_a_string() {\";\n"
                        "kernel void add(device float* y [[buffer(0)]]) { if (y) { y[0] = 1; } }\n"
                        "[[max_total_threads_per_threadgroup(64)]] [[kernel]] void bounded(uint i "
                        "[[thread_position_in_grid]]) {}\n"
                        "template <typename T> kernel void scale(device T* y [[buffer(0)]]) {}\n"
                        "INSTANCE(scale, float)\nINSTANCE(scale, half)\n"
                        "#ifdef EXTRA\nkernel void extra() {}\n#endif\n"
                        "void helper() {}\n";
    const auto names = [&](MTLCompileOptions* options) {
      std::string names;
      id<MTLLibrary> library = from_source(soft, source, &error, options);
      if (error) native_test::fail(__FILE__, __LINE__, [[error localizedDescription] UTF8String]);
      for (NSUInteger i = 0; i < [library.functionNames count]; ++i)
        names += std::string(" ") + [[library.functionNames objectAtIndex:i] UTF8String];
      return names;
    };
    CHECK_EQ(names(nil), " add bounded scale_float scale_half");
    MTLCompileOptions* options = soft.own([[MTLCompileOptions alloc] init]);
    options.fastMathEnabled = NO;
    options.languageVersion = MTLLanguageVersion3_1;
    options.preprocessorMacros = [NSDictionary dictionaryWithObject:@"1" forKey:@"EXTRA"];
    CHECK_EQ(names(options), " add bounded scale_float scale_half extra");
    CHECK_EQ(soft_metal::counters().libraries_from_source, 2u);
  });
}

NATIVE_TEST(soft_source_errors) {
  keeps([](Soft& soft) {
    CHECK_EQ(source_error(soft, @"#include <metal_stdlib>\n#include \"tile.h\"\n"),
             "program_source:2:10: fatal error: \"tile.h\" file not found");
    CHECK_EQ(source_error(soft, @"kernel void add() { if (true) { }\n"),
             "program_source: error: expected '}'");
    CHECK_EQ(source_error(soft, @"kernel void add() { f(1]; }\n"), "program_source: error: extraneous ']'");
    CHECK(source_error(soft, @"#error \"no\"\n").find("#error") != std::string::npos);
  });
}

NATIVE_TEST(soft_pipelines) {
  keeps([](Soft& soft) {
    id<MTLComputePipelineState> pipeline = soft.pipeline(@"bounded_threads");
    CHECK_EQ(pipeline.maxTotalThreadsPerThreadgroup, 64u);
    CHECK_EQ(pipeline.threadExecutionWidth, 32u);
    CHECK_EQ(soft.pipeline(@"transpose_f32_8").staticThreadgroupMemoryLength, 4u * (8 * 9 + 1));
    NSError* error = nil;
    MTLComputePipelineDescriptor* descriptor = descriptor_of(soft, @"specialised");
    CHECK(compile(soft, descriptor, MTLPipelineOptionNone, &error) == nil);  // its constant has no value
    CHECK([[error localizedDescription]
        hasPrefix:@"specialised: expected a value for function constant doubled"]);
  });
}

NATIVE_TEST(soft_binary_archive) {
  keeps([](Soft& soft) {
    const TemporaryPath path;
    NSError* error = nil;
    MTLBinaryArchiveDescriptor* empty = soft.own([[MTLBinaryArchiveDescriptor alloc] init]);
    id<MTLBinaryArchive> archive = soft.own([soft.device() newBinaryArchiveWithDescriptor:empty
                                                                                    error:&error]);
    MTLComputePipelineDescriptor* add = descriptor_of(soft, @"add");
    MTLComputePipelineDescriptor* argmax = descriptor_of(soft, @"argmax");
    CHECK([archive addComputePipelineFunctionsWithDescriptor:add error:&error]);
    CHECK([archive serializeToURL:path.url() error:&error]);

    MTLBinaryArchiveDescriptor* stored = soft.own([[MTLBinaryArchiveDescriptor alloc] init]);
    stored.url = path.url();
    archive = soft.own([soft.device() newBinaryArchiveWithDescriptor:stored error:&error]);
    CHECK(archive != nil);
    add.binaryArchives = argmax.binaryArchives = [NSArray arrayWithObject:archive];
    CHECK(compile(soft, add, MTLPipelineOptionFailOnBinaryArchiveMiss, &error) != nil);
    CHECK(compile(soft, argmax, MTLPipelineOptionFailOnBinaryArchiveMiss, &error) == nil);
    CHECK(error != nil);
    CHECK(compile(soft, argmax, MTLPipelineOptionNone, &error) != nil);
    CHECK_EQ(soft_metal::counters().pipelines_from_archive, 1u);
    CHECK_EQ(soft_metal::counters().pipelines_compiled, 1u);
  });
}

NATIVE_TEST(soft_damaged_binary_archive) {
  keeps([](Soft& soft) {
    const TemporaryPath path;
    MTLBinaryArchiveDescriptor* stored = soft.own([[MTLBinaryArchiveDescriptor alloc] init]);
    stored.url = path.url();
    for (const char* text : {"", "something else\n", "soft binary archive 1\nadd\n"}) {
      NSError* error = nil;
      path.write(text);
      CHECK([soft.device() newBinaryArchiveWithDescriptor:stored error:&error] == nil);
      CHECK_EQ(error.code, NSInteger(MTLBinaryArchiveErrorInvalidFile));
    }
  });
}
