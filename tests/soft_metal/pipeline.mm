#include "pipeline.h"

#include <algorithm>

#include "core/kernels.h"
#include "objects.h"

std::shared_ptr<soft_metal::Pipeline> soft_compile(SoftFunction* function, std::string& error) {
  const std::string name = soft_text(function.name);
  const pyturbo::KernelInfo* kernel = pyturbo::kernel_registry().find(name, pyturbo::Variant::reference);
  if (!kernel) {
    error = name + ": there is no reference kernel of that name";
    return nullptr;
  }
  const auto options = soft_metal::options();
  if (kernel->threadgroup_bytes > options.max_threadgroup_bytes) {
    error = name + ": Threadgroup memory size (" + std::to_string(kernel->threadgroup_bytes) +
            ") exceeds the maximum threadgroup memory allowed (" +
            std::to_string(options.max_threadgroup_bytes) + ")";
    return nullptr;
  }
  auto pipeline = std::make_shared<soft_metal::Pipeline>();
  pipeline->kernel = kernel;
  pipeline->max_threads = std::min(kernel->max_threads, options.max_threads);
  pipeline->values.reserve(kernel->constant_count);
  for (uint32_t i = 0; i < kernel->constant_count; ++i) {
    const pyturbo::ConstantInfo& constant = kernel->constants[i];
    const auto found = function->values_->values.find(constant.index);
    if (found != function->values_->values.end()) {
      pipeline->values.push_back(found->second.bytes);
      pipeline->constants[constant.slot] = pipeline->values.back().data();
    } else if (constant.required) {
      error = name + ": expected a value for function constant " + constant.name + ", got none";
      return nullptr;
    }
  }
  return pipeline;
}

@implementation MTLComputePipelineReflection
@end

@implementation MTLComputePipelineDescriptor

@synthesize label = label_, computeFunction = computeFunction_, binaryArchives = binaryArchives_,
            threadGroupSizeIsMultipleOfThreadExecutionWidth =
                threadGroupSizeIsMultipleOfThreadExecutionWidth_,
            maxTotalThreadsPerThreadgroup = maxTotalThreadsPerThreadgroup_;

- (void)dealloc {
  [label_ release];
  [computeFunction_ release];
  [binaryArchives_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLComputePipelineDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.label = label_;
  copy.computeFunction = computeFunction_;
  copy.binaryArchives = binaryArchives_;
  copy.threadGroupSizeIsMultipleOfThreadExecutionWidth = threadGroupSizeIsMultipleOfThreadExecutionWidth_;
  copy.maxTotalThreadsPerThreadgroup = maxTotalThreadsPerThreadgroup_;
  return copy;
}

@end

@implementation SoftComputePipelineState

- (id)initWithPipeline:(std::shared_ptr<soft_metal::Pipeline>)pipeline label:(NSString*)label {
  if (!(self = [super init])) return nil;
  pipeline_ = new std::shared_ptr<soft_metal::Pipeline>(std::move(pipeline));
  [self setLabel:label];
  return self;
}

- (void)dealloc {
  (*pipeline_)->released = true;
  if ((*pipeline_)->unretained_uses > 0)
    soft_metal::violate(soft_metal::Rule::released_in_use, [self quoted],
                        "expected it to live until the command buffer without references has finished");
  delete pipeline_;
  [super dealloc];
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return (*pipeline_)->max_threads;
}

- (NSUInteger)threadExecutionWidth {
  return pyturbo::kSimdWidth;
}

- (NSUInteger)staticThreadgroupMemoryLength {
  return (*pipeline_)->kernel->threadgroup_bytes;
}

@end
