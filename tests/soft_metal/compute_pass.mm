#include "objects.h"

@implementation MTLComputePassSampleBufferAttachmentDescriptor

@synthesize sampleBuffer = sampleBuffer_, startOfEncoderSampleIndex = startOfEncoderSampleIndex_,
            endOfEncoderSampleIndex = endOfEncoderSampleIndex_;

- (id)init {
  if (!(self = [super init])) return nil;
  startOfEncoderSampleIndex_ = endOfEncoderSampleIndex_ = MTLCounterDontSample;
  return self;
}

- (void)dealloc {
  [sampleBuffer_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLComputePassSampleBufferAttachmentDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.sampleBuffer = sampleBuffer_;
  copy.startOfEncoderSampleIndex = startOfEncoderSampleIndex_;
  copy.endOfEncoderSampleIndex = endOfEncoderSampleIndex_;
  return copy;
}

@end

@implementation MTLComputePassSampleBufferAttachmentDescriptorArray

- (id)init {
  if (!(self = [super init])) return nil;
  for (auto& attachment : attachments_)
    attachment = [[MTLComputePassSampleBufferAttachmentDescriptor alloc] init];
  return self;
}

- (void)dealloc {
  for (auto& attachment : attachments_) [attachment release];
  [super dealloc];
}

- (MTLComputePassSampleBufferAttachmentDescriptor*)objectAtIndexedSubscript:(NSUInteger)attachmentIndex {
  return attachmentIndex < std::size(attachments_) ? attachments_[attachmentIndex] : nil;
}

- (void)setObject:(MTLComputePassSampleBufferAttachmentDescriptor*)attachment
    atIndexedSubscript:(NSUInteger)attachmentIndex {
  if (attachmentIndex >= std::size(attachments_)) return;
  [attachments_[attachmentIndex] release];
  attachments_[attachmentIndex] =
      attachment ? [attachment copy] : [[MTLComputePassSampleBufferAttachmentDescriptor alloc] init];
}

@end

@implementation MTLComputePassDescriptor

@synthesize dispatchType = dispatchType_, sampleBufferAttachments = sampleBufferAttachments_;

+ (MTLComputePassDescriptor*)computePassDescriptor {
  return [[[self alloc] init] autorelease];
}

- (id)init {
  if (!(self = [super init])) return nil;
  sampleBufferAttachments_ = [[MTLComputePassSampleBufferAttachmentDescriptorArray alloc] init];
  return self;
}

- (void)dealloc {
  [sampleBufferAttachments_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLComputePassDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.dispatchType = dispatchType_;
  for (NSUInteger i = 0; [sampleBufferAttachments_ objectAtIndexedSubscript:i]; ++i)
    [copy.sampleBufferAttachments setObject:[sampleBufferAttachments_ objectAtIndexedSubscript:i]
                         atIndexedSubscript:i];
  return copy;
}

@end

@implementation MTLCommandBufferDescriptor

@synthesize retainedReferences = retainedReferences_, errorOptions = errorOptions_;

- (id)init {
  if ((self = [super init])) retainedReferences_ = YES;
  return self;
}

- (id)copyWithZone:(NSZone*)zone {
  MTLCommandBufferDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.retainedReferences = retainedReferences_;
  copy.errorOptions = errorOptions_;
  return copy;
}

@end
