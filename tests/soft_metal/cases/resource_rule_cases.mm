// Rules about buffers, functions, sample buffers and the lives of objects.
#include <sys/mman.h>

#include "soft_case.h"

namespace {

constexpr NSUInteger kPage = 16384;

// Pages of memory whose first byte lies on a multiple of 16 KiB.
class Pages {
 public:
  explicit Pages(NSUInteger count)
      : bytes_((count + 1) * kPage),
        mapping_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Pages() { munmap(mapping_, bytes_); }
  uint8_t* data() const {
    return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(mapping_) + kPage - 1) / kPage * kPage);
  }

 private:
  size_t bytes_;
  void* mapping_;
};

id<MTLBuffer> no_copy(Soft& soft, void* pointer, NSUInteger length,
                      MTLResourceOptions options = MTLResourceStorageModeShared) {
  return [soft.device() newBufferWithBytesNoCopy:pointer length:length options:options deallocator:nil];
}

}  // namespace

NATIVE_TEST(soft_buffer_length) {
  auto options = soft_metal::Options();
  options.max_buffer_length = 2 * kPage;
  const Pages pages(4);
  for (const NSUInteger length : {NSUInteger(0), 2 * kPage + 1})
    breaks(Rule::buffer_length, [&](Soft& soft) {
      soft_metal::set_options(options);
      CHECK([soft.device() newBufferWithLength:length options:MTLResourceStorageModeShared] == nil);
    });
  breaks(Rule::buffer_length, [&](Soft& soft) {
    soft_metal::set_options(options);
    CHECK(no_copy(soft, pages.data(), 3 * kPage) == nil);
  });
  keeps([&](Soft& soft) {
    soft_metal::set_options(options);
    id<MTLBuffer> buffer = soft.own([soft.device() newBufferWithLength:2 * kPage
                                                               options:MTLResourceStorageModeShared]);
    CHECK_EQ(buffer.length, 2 * kPage);
    CHECK_EQ(soft.device().currentAllocatedSize, 2 * kPage);
    CHECK(soft.own(no_copy(soft, pages.data(), 2 * kPage)) != nil);
  });
}

NATIVE_TEST(soft_no_copy_alignment) {
  const Pages pages(3);
  breaks(Rule::no_copy_alignment,
         [&](Soft& soft) { CHECK(no_copy(soft, pages.data() + 4096, kPage) == nil); });
  breaks(Rule::no_copy_alignment,
         [&](Soft& soft) { CHECK(no_copy(soft, pages.data(), kPage + 4096) == nil); });
  breaks(Rule::no_copy_alignment, [&](Soft& soft) { CHECK(no_copy(soft, nullptr, kPage) == nil); });
  keeps([&](Soft& soft) {
    id<MTLBuffer> buffer = soft.own(no_copy(soft, pages.data() + kPage, 2 * kPage));
    CHECK([buffer contents] == pages.data() + kPage);
  });
}

NATIVE_TEST(soft_no_copy_of_unmapped_memory) {
  Pages pages(4);
  munmap(pages.data() + 2 * kPage, kPage);
  breaks(Rule::no_copy_alignment, [&](Soft& soft) { CHECK(no_copy(soft, pages.data(), 3 * kPage) == nil); });
  keeps([&](Soft& soft) { CHECK(soft.own(no_copy(soft, pages.data(), 2 * kPage)) != nil); });
}

NATIVE_TEST(soft_buffer_options) {
  const Pages pages(1);
  breaks(Rule::buffer_options, [&](Soft& soft) {
    CHECK(no_copy(soft, pages.data(), kPage, MTLResourceStorageModePrivate) == nil);
  });
  keeps([&](Soft& soft) {
    id<MTLBuffer> buffer = soft.own([soft.device() newBufferWithLength:4
                                                               options:MTLResourceStorageModePrivate]);
    CHECK_EQ(buffer.storageMode, MTLStorageModePrivate);
    CHECK([buffer contents] == nullptr);
  });
}

NATIVE_TEST(soft_two_buffers_over_the_same_pages) {
  const Pages pages(3);
  const auto through_windows = [&](Soft& soft, NSUInteger second) {
    id<MTLBuffer> one = soft.own(no_copy(soft, pages.data(), 2 * kPage));
    id<MTLBuffer> two = soft.own(no_copy(soft, pages.data() + kPage, 2 * kPage));
    id<MTLBuffer> a = soft.buffer(10, 1);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder =
        [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    encode_add(soft, encoder, a, a, soft.buffer(10), 10);
    [encoder setBuffer:one offset:kPage atIndex:2];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
    [encoder setBuffer:two offset:second atIndex:2];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
    [encoder endEncoding];
    return commands;
  };
  breaks(Rule::missing_barrier, [&](Soft& soft) { soft.failure(through_windows(soft, 0)); });
  keeps([&](Soft& soft) { soft.finish(through_windows(soft, 40)); });
}

NATIVE_TEST(soft_unknown_function) {
  breaks(Rule::unknown_function,
         [](Soft& soft) { CHECK([soft.library() newFunctionWithName:@"subtract"] == nil); });
  breaks(Rule::unknown_function, [](Soft& soft) {
    NSError* error = nil;
    MTLFunctionConstantValues* values = soft.own([[MTLFunctionConstantValues alloc] init]);
    CHECK([soft.library() newFunctionWithName:@"subtract" constantValues:values error:&error] == nil);
    CHECK_EQ(error.code, NSInteger(MTLLibraryErrorFunctionNotFound));
  });
  keeps([](Soft& soft) {
    id<MTLFunction> function = soft.own([soft.library() newFunctionWithName:@"add"]);
    CHECK([function.name isEqualToString:@"add"]);
    CHECK([soft.library().functionNames containsObject:@"rms_norm_f32"]);
  });
}

NATIVE_TEST(soft_function_constant) {
  const auto specialised = [](Soft& soft, MTLDataType type, NSUInteger index, NSError** error) {
    MTLFunctionConstantValues* values = soft.own([[MTLFunctionConstantValues alloc] init]);
    const uint64_t value = 1;
    [values setConstantValue:&value type:type atIndex:index];
    return soft.own([soft.library() newFunctionWithName:@"specialised" constantValues:values error:error]);
  };
  breaks(Rule::function_constant, [&](Soft& soft) {  // the required one is missing
    NSError* error = nil;
    CHECK(specialised(soft, MTLDataTypeUInt, 1201, &error) == nil);
    CHECK([[error localizedDescription]
        hasPrefix:@"specialised: expected a value for function constant doubled"]);
  });
  breaks(Rule::function_constant, [&](Soft& soft) {  // the shader says bool
    NSError* error = nil;
    CHECK(specialised(soft, MTLDataTypeUInt, 0, &error) == nil);
    CHECK(error != nil);
  });
  breaks(Rule::function_constant, [&](Soft& soft) {
    MTLFunctionConstantValues* values = soft.own([[MTLFunctionConstantValues alloc] init]);
    [values setConstantValue:"" type:MTLDataTypeNone atIndex:0];
  });
  keeps([&](Soft& soft) { CHECK(specialised(soft, MTLDataTypeBool, 0, nullptr) != nil); });
}

NATIVE_TEST(soft_sample_buffer) {
  const auto sampled = [](Soft& soft, NSUInteger last) {
    MTLCounterSampleBufferDescriptor* descriptor = soft.own([[MTLCounterSampleBufferDescriptor alloc] init]);
    descriptor.counterSet = [soft.device().counterSets objectAtIndex:0];
    descriptor.sampleCount = 4;
    descriptor.storageMode = MTLStorageModeShared;
    id<MTLCounterSampleBuffer> samples =
        soft.own([soft.device() newCounterSampleBufferWithDescriptor:descriptor error:nullptr]);
    MTLComputePassDescriptor* pass = [MTLComputePassDescriptor computePassDescriptor];
    [pass.sampleBufferAttachments objectAtIndexedSubscript:0].sampleBuffer = samples;
    [pass.sampleBufferAttachments objectAtIndexedSubscript:0].startOfEncoderSampleIndex = 2;
    [pass.sampleBufferAttachments objectAtIndexedSubscript:0].endOfEncoderSampleIndex = last;
    id<MTLCommandBuffer> commands = soft.commands();
    [[commands computeCommandEncoderWithDescriptor:pass] endEncoding];
    return std::pair(commands, samples);
  };
  breaks(Rule::sample_buffer, [&](Soft& soft) { soft.failure(sampled(soft, 4).first); });
  breaks(Rule::sample_buffer, [&](Soft& soft) {
    const auto [commands, samples] = sampled(soft, 3);
    soft.finish(commands);
    CHECK([samples resolveCounterRange:NSMakeRange(3, 2)] == nil);
  });
  breaks(Rule::sample_buffer, [&](Soft& soft) {  // a device that cannot sample there
    const auto [commands, samples] = sampled(soft, 3);
    auto options = soft_metal::options();
    options.counter_sampling = false;
    soft_metal::set_options(options);
    MTLComputePassDescriptor* pass = [MTLComputePassDescriptor computePassDescriptor];
    [pass.sampleBufferAttachments objectAtIndexedSubscript:0].sampleBuffer = samples;
    [[commands computeCommandEncoderWithDescriptor:pass] endEncoding];
    soft.failure(commands);
  });
  keeps([&](Soft& soft) {
    soft.finish(sampled(soft, 3).first);
    soft.finish(sampled(soft, MTLCounterDontSample).first);
  });
}

NATIVE_TEST(soft_released_in_use) {
  const auto run = [](Soft& soft, bool retained, bool early) {
    MTLCommandBufferDescriptor* descriptor = soft.own([[MTLCommandBufferDescriptor alloc] init]);
    descriptor.retainedReferences = retained;
    id<MTLCommandBuffer> commands = [soft.queue() commandBufferWithDescriptor:descriptor];
    id<MTLBuffer> y = [soft.device() newBufferWithLength:40 options:MTLResourceStorageModeShared];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_add(soft, encoder, soft.buffer(10), soft.buffer(10), y, 10);
    [encoder endEncoding];
    if (early) [y release];
    [commands commit];
    [commands waitUntilCompleted];
    if (!early) [y release];
    return commands.status;
  };
  breaks(Rule::released_in_use, [&](Soft& soft) {
    CHECK_EQ(run(soft, /*retained=*/false, /*early=*/true), MTLCommandBufferStatusError);
  });
  breaks(Rule::released_in_use, [&](Soft& soft) {  // a pipeline
    id<MTLFunction> function = soft.own([soft.library() newFunctionWithName:@"add"]);
    id<MTLComputePipelineState> pipeline = [soft.device() newComputePipelineStateWithFunction:function
                                                                                        error:nullptr];
    id<MTLCommandBuffer> commands = [soft.queue() commandBufferWithUnretainedReferences];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:pipeline];
    [encoder endEncoding];
    [pipeline release];
    soft.failure(commands);
  });
  keeps([&](Soft& soft) {
    CHECK_EQ(run(soft, /*retained=*/true, /*early=*/true), MTLCommandBufferStatusCompleted);
    CHECK_EQ(run(soft, /*retained=*/false, /*early=*/false), MTLCommandBufferStatusCompleted);
  });
}

NATIVE_TEST(soft_autorelease_pool) {
  {
    soft_metal::reset();
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands commit];
    [commands waitUntilCompleted];
    [commands release];  // what the pool would have done
    [queue release];
    [device release];
    const auto violations = soft_metal::violations();
    CHECK_EQ(violations.size(), 1u);
    CHECK(violations[0].rule == Rule::autorelease_pool);
    CHECK(violations[0].text.find("SoftCommandBuffer") != std::string::npos);
    CHECK(soft_metal::live_objects().empty());
  }
  keeps([](Soft& soft) {  // nothing in this is autoreleased
    id<MTLBuffer> buffer = [soft.device() newBufferWithLength:4 options:MTLResourceStorageModeShared];
    [buffer release];
    soft.finish(soft.commands());
  });
}

NATIVE_TEST(soft_live_objects) {
  soft_metal::reset();
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLBuffer> buffer = [device newBufferWithLength:4 options:MTLResourceStorageModeShared];
  CHECK_EQ(soft_metal::live_objects()["MTLBuffer"], 1);
  CHECK_EQ(soft_metal::live_objects()["MTLDevice"], 1);
  [device release];
  CHECK_EQ(soft_metal::live_objects()["MTLDevice"], 1);  // the buffer's
  [buffer release];
  CHECK(soft_metal::live_objects().empty());
}
