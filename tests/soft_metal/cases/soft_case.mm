#include "soft_case.h"

namespace {

void check_nothing_left() {
  std::string left;
  for (const auto& [name, count] : soft_metal::live_objects())
    left += " " + std::to_string(count) + " " + name;
  if (!left.empty()) native_test::fail(__FILE__, __LINE__, "expected no object left, got" + left);
}

}  // namespace

Soft::Soft() {
  soft_metal::reset();
  pool_ = [[NSAutoreleasePool alloc] init];
  device_ = MTLCreateSystemDefaultDevice();
  queue_ = [device_ newCommandQueue];
  NSString* path = [NSString stringWithUTF8String:SOFT_METALLIB];
  library_ = [device_ newLibraryWithURL:[NSURL fileURLWithPath:path] error:nullptr];
}

Soft::~Soft() {
  for (id object : owned_) [object release];
  [library_ release];
  [queue_ release];
  [device_ release];
  [pool_ release];
}

id<MTLBuffer> Soft::buffer(NSUInteger count, float value) {
  id<MTLBuffer> buffer = own([device_ newBufferWithLength:count * sizeof(float)
                                                  options:MTLResourceStorageModeShared]);
  std::fill_n(floats(buffer), count, value);
  return buffer;
}

id<MTLComputePipelineState> Soft::pipeline(NSString* name, MTLFunctionConstantValues* values) {
  NSError* error = nil;
  id<MTLFunction> function = values ? [library_ newFunctionWithName:name constantValues:values error:&error]
                                    : [library_ newFunctionWithName:name];
  id<MTLComputePipelineState> state = [device_ newComputePipelineStateWithFunction:function error:&error];
  [function release];
  CHECK(state != nil);
  return own(state);
}

id<MTLCommandBuffer> Soft::commands(NSString* label) {
  id<MTLCommandBuffer> commands = [queue_ commandBuffer];
  commands.label = label;
  return commands;
}

void Soft::finish(id<MTLCommandBuffer> commands) {
  [commands commit];
  [commands waitUntilCompleted];
  if (commands.error)
    native_test::fail(__FILE__, __LINE__, [[commands.error localizedDescription] UTF8String]);
  CHECK_EQ(commands.status, MTLCommandBufferStatusCompleted);
}

std::string Soft::failure(id<MTLCommandBuffer> commands) {
  [commands commit];
  [commands waitUntilCompleted];
  CHECK_EQ(commands.status, MTLCommandBufferStatusError);
  CHECK(commands.error != nil);
  return [[commands.error localizedDescription] UTF8String];
}

void encode_add(Soft& soft, id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> a, id<MTLBuffer> b,
                id<MTLBuffer> y, uint32_t count) {
  [encoder setComputePipelineState:soft.pipeline(@"add")];
  [encoder setBuffer:a offset:0 atIndex:0];
  [encoder setBuffer:b offset:0 atIndex:1];
  [encoder setBuffer:y offset:0 atIndex:2];
  [encoder setBytes:&count length:sizeof count atIndex:3];
  [encoder dispatchThreadgroups:MTLSizeMake((count + kThreads - 1) / kThreads, 1, 1)
          threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
}

void breaks(Rule rule, const std::function<void(Soft&)>& body) {
  {
    Soft soft;
    body(soft);
  }
  const auto violations = soft_metal::violations();
  if (violations.empty())
    native_test::fail(__FILE__, __LINE__,
                      std::string("expected a violation of ") + soft_metal::rule_name(rule));
  for (const auto& violation : violations)
    if (violation.rule != rule)
      native_test::fail(
          __FILE__, __LINE__,
          std::string("expected ") + soft_metal::rule_name(rule) + " alone, got " + violation.text);
  check_nothing_left();
}

void keeps(const std::function<void(Soft&)>& body) {
  {
    Soft soft;
    body(soft);
  }
  for (const auto& violation : soft_metal::violations())
    native_test::fail(__FILE__, __LINE__, "expected no violation, got " + violation.text);
  check_nothing_left();
}
