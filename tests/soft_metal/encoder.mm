#include <algorithm>

#include "launch.h"
#include "objects.h"

using soft_metal::Binding;
using soft_metal::Rule;

namespace {

constexpr NSUInteger kBindings = pyturbo::kMaxArguments;
constexpr NSUInteger kSetBytesLimit = 4096;

// Sizes beyond 32 bits are refused as the largest 32-bit one.
pyturbo::Extent extent(const MTLSize& size) {
  const auto narrow = [](NSUInteger value) { return uint32_t(std::min<NSUInteger>(value, UINT32_MAX)); };
  return {narrow(size.width), narrow(size.height), narrow(size.depth)};
}

}  // namespace

struct SoftEncoderState {
  const soft_metal::Options options = soft_metal::options();
  bool ended = false;
  NSInteger groups = 0;  // debug groups that are open
  std::shared_ptr<soft_metal::Pipeline> pipeline;
  Binding bindings[kBindings];
  uint32_t threadgroup_bytes[kBindings] = {};
  std::shared_ptr<const std::string> label = std::make_shared<const std::string>();
  soft_metal::PassEnd end{};
};

@interface SoftComputeCommandEncoder (Checks)
- (void)dispatch:(const pyturbo::Dispatch&)geometry indirect:(const Binding&)indirect call:(const char*)call;
- (BOOL)usable:(const char*)call;
- (BOOL)usable:(const char*)call index:(NSUInteger)index;
- (void)violate:(Rule)rule text:(const std::string&)text;
- (void)sampleInto:(MTLComputePassSampleBufferAttachmentDescriptor*)attachment
              pass:(soft_metal::PassBegin&)pass;
@end

@implementation SoftComputeCommandEncoder

- (id)initWithCommandBuffer:(SoftCommandBuffer*)commandBuffer
                 concurrent:(BOOL)concurrent
                 attachment:(MTLComputePassSampleBufferAttachmentDescriptor*)attachment {
  if (!(self = [super init])) return nil;
  state_ = new SoftEncoderState;
  commandBuffer_ = [commandBuffer retain];
  soft_metal::PassBegin pass{bool(concurrent), nullptr, MTLCounterDontSample};
  if (attachment.sampleBuffer) [self sampleInto:attachment pass:pass];
  (*commandBuffer_->list_)->add(pass);
  return self;
}

- (void)sampleInto:(MTLComputePassSampleBufferAttachmentDescriptor*)attachment
              pass:(soft_metal::PassBegin&)pass {
  SoftCounterSampleBuffer* buffer = (SoftCounterSampleBuffer*)attachment.sampleBuffer;
  const NSUInteger count = buffer.sampleCount;
  if (!state_->options.counter_sampling)
    [self violate:Rule::sample_buffer
             text:"expected no sample buffer, since the device cannot sample at stages"];
  for (const NSUInteger index : {attachment.startOfEncoderSampleIndex, attachment.endOfEncoderSampleIndex})
    if (index >= count && index != MTLCounterDontSample)
      [self violate:Rule::sample_buffer
               text:"expected a sample index below " + std::to_string(count) + ", got " +
                    std::to_string(index)];
  [commandBuffer_ use:buffer resource:*buffer->samples_];
  pass.samples = *buffer->samples_;
  pass.sample = attachment.startOfEncoderSampleIndex;
  state_->end = {*buffer->samples_, attachment.endOfEncoderSampleIndex};
}

- (void)dealloc {
  if (!state_->ended) {
    [self violate:Rule::encoder_open text:"expected endEncoding before release"];
    if (commandBuffer_->open_ == self) commandBuffer_->open_ = nil;
  }
  [commandBuffer_ release];
  delete state_;
  [super dealloc];
}

- (void)setLabel:(NSString*)label {
  [super setLabel:label];
  state_->label = std::make_shared<const std::string>(soft_text(label));
}

- (void)violate:(Rule)rule text:(const std::string&)text {
  [commandBuffer_ violate:rule object:[commandBuffer_ quoted] + ", " + [self quoted] text:text];
}

- (BOOL)usable:(const char*)call {
  if (state_->ended)
    [self violate:Rule::encoder_ended text:std::string("got ") + call + " after endEncoding"];
  else if ((*commandBuffer_->list_)->is_committed())
    [self violate:Rule::committed text:std::string("got ") + call + " after the command buffer's commit"];
  else
    return YES;
  return NO;
}

- (BOOL)usable:(const char*)call index:(NSUInteger)index {
  if (![self usable:call]) return NO;
  if (index < kBindings) return YES;
  [self violate:Rule::binding_index
           text:std::string(call) + ": expected an index below " + std::to_string(kBindings) + ", got " +
                std::to_string(index)];
  return NO;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  if (![self usable:"setComputePipelineState"]) return;
  if (!state) {
    [self violate:Rule::pipeline_missing text:"expected a pipeline, got nil"];
    return;
  }
  SoftComputePipelineState* pipeline = (SoftComputePipelineState*)state;
  [commandBuffer_ use:pipeline resource:*pipeline->pipeline_];
  state_->pipeline = *pipeline->pipeline_;
}

- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  if (![self usable:"setBytes" index:index]) return;
  if (length == 0 || length > kSetBytesLimit) {
    [self violate:Rule::set_bytes_length
             text:"expected 1 to 4096 bytes at index " + std::to_string(index) + ", got " +
                  std::to_string(length)];
    return;
  }
  const auto* begin = static_cast<const uint8_t*>(bytes);
  state_->bindings[index] = {nullptr, 0, std::make_shared<const std::vector<uint8_t>>(begin, begin + length)};
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self usable:"setBuffer" index:index]) return;
  state_->bindings[index] = {};
  if (!buffer) return;
  SoftBuffer* soft = (SoftBuffer*)buffer;
  [commandBuffer_ use:soft resource:*soft->memory_];
  state_->bindings[index].memory = *soft->memory_;
  [self setBufferOffset:offset atIndex:index];
}

- (void)setBuffers:(const id<MTLBuffer>[])buffers
           offsets:(const NSUInteger[])offsets
         withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i)
    [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self usable:"setBufferOffset" index:index]) return;
  Binding& binding = state_->bindings[index];
  if (!binding.memory) {
    [self violate:Rule::unbound_argument
             text:"setBufferOffset: expected a buffer at index " + std::to_string(index) + ", got none"];
  } else if (offset >= binding.memory->length) {
    [self violate:Rule::offset
             text:"expected an offset below " + std::to_string(binding.memory->length) + " at index " +
                  std::to_string(index) + ", got " + std::to_string(offset)];
  } else {
    binding.offset = offset;
  }
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  if (![self usable:"setThreadgroupMemoryLength" index:index]) return;
  const uint32_t limit = state_->options.max_threadgroup_bytes;
  if (length % 16 || length > limit) {
    [self violate:Rule::threadgroup_memory
             text:"expected a multiple of 16 up to " + std::to_string(limit) + " bytes at index " +
                  std::to_string(index) + ", got " + std::to_string(length)];
    return;
  }
  state_->threadgroup_bytes[index] = uint32_t(length);
}

- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  const pyturbo::Dispatch geometry{extent(threadgroupsPerGrid), extent(threadsPerThreadgroup)};
  [self dispatch:geometry indirect:Binding() call:"dispatchThreadgroups"];
}

- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)indirectBuffer
                          indirectBufferOffset:(NSUInteger)indirectBufferOffset
                         threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  const char* call = "dispatchThreadgroupsWithIndirectBuffer";
  if (![self usable:call]) return;
  SoftBuffer* soft = (SoftBuffer*)indirectBuffer;
  const NSUInteger length = soft ? (*soft->memory_)->length : 0;
  const NSUInteger bytes = sizeof(MTLDispatchThreadgroupsIndirectArguments);
  if (indirectBufferOffset % 4 || bytes > length || indirectBufferOffset > length - bytes) {
    [self violate:Rule::offset
             text:std::string(call) + ": expected a multiple of 4 with 12 bytes behind it, got " +
                  std::to_string(indirectBufferOffset) + " of " + std::to_string(length) + " bytes"];
    return;
  }
  [commandBuffer_ use:soft resource:*soft->memory_];
  const pyturbo::Dispatch geometry{{}, extent(threadsPerThreadgroup)};
  const Binding groups{*soft->memory_, indirectBufferOffset, nullptr};
  [self dispatch:geometry indirect:groups call:call];
}

- (void)dispatch:(const pyturbo::Dispatch&)geometry indirect:(const Binding&)indirect call:(const char*)call {
  if (![self usable:call]) return;
  if (!state_->pipeline) {
    [self violate:Rule::pipeline_missing text:std::string("expected setComputePipelineState before ") + call];
    return;
  }
  const pyturbo::KernelInfo& kernel = *state_->pipeline->kernel;
  soft_metal::Launch launch{state_->pipeline,
                            std::vector<Binding>(kernel.argument_count),
                            std::vector<uint32_t>(kernel.argument_count),
                            geometry,
                            indirect,
                            state_->label};
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const pyturbo::ArgumentInfo& argument = kernel.arguments[i];
    if (argument.kind == pyturbo::ArgumentKind::threadgroup)
      launch.threadgroup_bytes[i] = state_->threadgroup_bytes[argument.index];
    else if (launch.pipeline->takes(argument))
      launch.bindings[i] = state_->bindings[argument.index];
  }
  SoftComputeCommandEncoder* encoder = self;  // GCC loses self when it names instance variables in a lambda
  const auto object = [encoder, &kernel] {
    return [encoder->commandBuffer_ quoted] + ", " + [encoder quoted] + ", " + kernel.name;
  };
  const std::string wrong = check_encoded(launch, object, state_->options);
  if (wrong.empty())
    (*commandBuffer_->list_)->add(std::move(launch));
  else
    (*commandBuffer_->list_)->fail(wrong);
}

- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  if (![self usable:"memoryBarrierWithScope"]) return;
  if (scope & MTLBarrierScopeBuffers) (*commandBuffer_->list_)->add(soft_metal::Barrier{true, {}});
}

- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
  if (![self usable:"memoryBarrierWithResources"]) return;
  soft_metal::Barrier barrier{false, {}};
  for (NSUInteger i = 0; i < count; ++i)
    barrier.memories.push_back(((SoftBuffer*)resources[i])->memory_->get());
  (*commandBuffer_->list_)->add(std::move(barrier));
}

- (void)insertDebugSignpost:(NSString*)string {
  [self usable:"insertDebugSignpost"];
}

- (void)pushDebugGroup:(NSString*)string {
  if ([self usable:"pushDebugGroup"]) ++state_->groups;
}

- (void)popDebugGroup {
  if (![self usable:"popDebugGroup"]) return;
  if (--state_->groups < 0)
    [self violate:Rule::debug_groups text:"expected pushDebugGroup before popDebugGroup"];
}

- (void)endEncoding {
  if (![self usable:"endEncoding"]) return;
  if (state_->groups > 0)
    [self violate:Rule::debug_groups
             text:"expected popDebugGroup " + std::to_string(state_->groups) + " times before endEncoding"];
  state_->ended = true;
  commandBuffer_->open_ = nil;
  (*commandBuffer_->list_)->add(state_->end);
}

@end
