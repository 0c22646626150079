#include "null.h"

@interface SoftNullEncoder : SoftLabelled <MTLComputeCommandEncoder>
@end

@interface SoftNullCommandBuffer : SoftLabelled <MTLCommandBuffer>
@end

@implementation SoftNullEncoder

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers
           offsets:(const NSUInteger[])offsets
         withRange:(NSRange)range {
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
}
- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
}
- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)indirectBuffer
                          indirectBufferOffset:(NSUInteger)indirectBufferOffset
                         threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
}
- (void)insertDebugSignpost:(NSString*)string {
}
- (void)pushDebugGroup:(NSString*)string {
}
- (void)popDebugGroup {
}
- (void)endEncoding {
}

@end

@implementation SoftNullCommandBuffer

- (CFTimeInterval)GPUStartTime {
  return 0;
}
- (CFTimeInterval)GPUEndTime {
  return 0;
}
- (MTLCommandBufferStatus)status {
  return MTLCommandBufferStatusCompleted;
}
- (NSError*)error {
  return nil;
}
- (void)enqueue {
}
- (void)commit {
}
- (void)waitUntilScheduled {
}
- (void)waitUntilCompleted {
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [[[SoftNullEncoder alloc] init] autorelease];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
  return [self computeCommandEncoder];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  return [self computeCommandEncoder];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
}

@end

@implementation SoftNullQueue

- (id<MTLCommandBuffer>)commandBuffer {
  return [[[SoftNullCommandBuffer alloc] init] autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self commandBuffer];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
  return [self commandBuffer];
}

@end
