// The classes behind the protocols of <Metal/Metal.h>. Each holds the C++ state that commands share with it.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "command_list.h"
#include "control.h"
#include "queue.h"
#include "resources.h"

// An autorelease pool for what soft Metal itself makes on the way.
struct SoftPool {
  SoftPool() : pool([[NSAutoreleasePool alloc] init]) {}
  ~SoftPool() { [pool release]; }
  SoftPool(const SoftPool&) = delete;
  NSAutoreleasePool* pool;
};

std::string soft_text(NSString* string);  // empty for nil
NSString* soft_new_string(const std::string& text);
std::string soft_path(NSURL* url);

// Stores an autoreleased error where the caller wants one.
void soft_error(NSError** error, NSErrorDomain domain, NSInteger code, const std::string& text);

struct SoftConstantValues {
  soft_metal::ConstantValues values;
};

@interface SoftLabelled : SoftObject {
  NSString* label_;
}
@property(copy, atomic) NSString* label;
- (std::string)quoted;  // "MTLBuffer 'label'"
@end

@interface SoftBuffer : SoftLabelled <MTLBuffer> {
 @public
  std::shared_ptr<soft_metal::Memory>* memory_;
  id device_;
  MTLStorageMode storageMode_;
}
- (id)initWithMemory:(std::shared_ptr<soft_metal::Memory>)memory
              device:(id)device
             options:(MTLResourceOptions)options;
@end

@interface SoftSharedEvent : SoftLabelled <MTLSharedEvent> {
 @public
  std::shared_ptr<soft_metal::Event>* event_;
}
@end

@interface SoftCounterSampleBuffer : SoftLabelled <MTLCounterSampleBuffer> {
 @public
  std::shared_ptr<soft_metal::Samples>* samples_;
}
- (id)initWithCount:(NSUInteger)count label:(NSString*)label;
@end

@interface SoftCounterSet : SoftObject <MTLCounterSet>
@end

@interface SoftLibrary : SoftLabelled <MTLLibrary> {
  NSArray* functionNames_;
}
- (id)initWithFunctionNames:(const std::vector<std::string>&)names;
@end

@interface SoftFunction : SoftLabelled <MTLFunction> {
 @public
  NSString* name_;
  SoftConstantValues* values_;
}
- (id)initWithName:(NSString*)name values:(const SoftConstantValues&)values;
// Names kernel and constants; the same for functions that compile to the same code.
- (std::string)key;
@end

@interface SoftComputePipelineState : SoftLabelled <MTLComputePipelineState> {
 @public
  std::shared_ptr<soft_metal::Pipeline>* pipeline_;
}
- (id)initWithPipeline:(std::shared_ptr<soft_metal::Pipeline>)pipeline label:(NSString*)label;
@end

@interface SoftBinaryArchive : SoftLabelled <MTLBinaryArchive> {
  std::set<std::string>* keys_;
}
- (id)initWithURL:(NSURL*)url error:(NSError**)error;
- (BOOL)contains:(const std::string&)key;
@end

@interface SoftCommandQueue : SoftLabelled <MTLCommandQueue> {
 @public
  std::shared_ptr<soft_metal::Queue>* queue_;
  id device_;
  NSMutableArray* residencySets_;
}
- (id)initWithDevice:(id)device;
@end

@interface SoftCommandBuffer : SoftLabelled <MTLCommandBuffer> {
 @public
  std::shared_ptr<soft_metal::CommandList>* list_;
  std::set<id>* references_;                                     // retained, unless references are not
  std::set<std::shared_ptr<soft_metal::Resource>>* unretained_;  // counted instead
  SoftCommandQueue* queue_;
  id open_;  // the encoder that has not ended; not retained
  NSError* error_;
  BOOL retains_;
}
- (id)initWithQueue:(SoftCommandQueue*)queue retainedReferences:(BOOL)retains;
// Keeps `object` until the commands have run, or remembers that it must not go.
- (void)use:(id)object resource:(std::shared_ptr<soft_metal::Resource>)resource;
- (void)violate:(soft_metal::Rule)rule object:(const std::string&)object text:(const std::string&)text;
@end

@interface SoftComputeCommandEncoder : SoftLabelled <MTLComputeCommandEncoder> {
 @public
  struct SoftEncoderState* state_;
  SoftCommandBuffer* commandBuffer_;
}
- (id)initWithCommandBuffer:(SoftCommandBuffer*)commandBuffer
                 concurrent:(BOOL)concurrent
                 attachment:(MTLComputePassSampleBufferAttachmentDescriptor*)attachment;
@end

@interface SoftDevice : SoftObject <MTLDevice> {
  NSString* name_;
  BOOL shouldMaximizeConcurrentCompilation_;
}
@end
