#include "objects.h"

MTLCommonCounter MTLCommonCounterTimestamp = @"GPUTimestamp";
MTLCommonCounterSet MTLCommonCounterSetTimestamp = @"timestamp";
NSErrorDomain const MTLCounterErrorDomain = @"MTLCounterErrorDomain";

@interface SoftCounter : SoftObject <MTLCounter>
@end

@implementation SoftCounter
- (NSString*)name {
  return MTLCommonCounterTimestamp;
}
@end

@implementation SoftCounterSet

- (NSString*)name {
  return MTLCommonCounterSetTimestamp;
}

- (NSArray*)counters {
  SoftCounter* counter = [[SoftCounter alloc] init];
  NSArray* counters = [[NSArray alloc] initWithObjects:counter, nil];
  [counter release];
  return [counters autorelease];
}

@end

@implementation MTLCounterSampleBufferDescriptor

@synthesize counterSet = counterSet_, label = label_, storageMode = storageMode_, sampleCount = sampleCount_;

- (void)dealloc {
  [counterSet_ release];
  [label_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLCounterSampleBufferDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.counterSet = counterSet_;
  copy.label = label_;
  copy.storageMode = storageMode_;
  copy.sampleCount = sampleCount_;
  return copy;
}

@end

@implementation SoftCounterSampleBuffer

- (id)initWithCount:(NSUInteger)count label:(NSString*)label {
  if (!(self = [super init])) return nil;
  samples_ = new std::shared_ptr<soft_metal::Samples>(std::make_shared<soft_metal::Samples>(count));
  [self setLabel:label];
  return self;
}

- (void)dealloc {
  (*samples_)->released = true;
  delete samples_;
  [super dealloc];
}

- (NSUInteger)sampleCount {
  return (*samples_)->timestamps.size();
}

- (NSData*)resolveCounterRange:(NSRange)range {
  const auto& timestamps = (*samples_)->timestamps;
  if (range.location > timestamps.size() || range.length > timestamps.size() - range.location) {
    soft_metal::violate(soft_metal::Rule::sample_buffer, [self quoted],
                        "expected a range within " + std::to_string(timestamps.size()) + " samples, got " +
                            std::to_string(range.location) + " + " + std::to_string(range.length));
    return nil;
  }
  std::vector<MTLCounterResultTimestamp> results(range.length);
  for (NSUInteger i = 0; i < range.length; ++i) results[i].timestamp = timestamps[range.location + i];
  const NSUInteger bytes = results.size() * sizeof(MTLCounterResultTimestamp);
  return [[[NSData alloc] initWithBytes:results.data() length:bytes] autorelease];
}

@end
