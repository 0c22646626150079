#include "objects.h"

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

using soft_metal::CommandList;
using soft_metal::Rule;

@interface SoftCommandBuffer (Encoding)
- (BOOL)mayEncode:(const char*)call;
- (void)dropReferences;
@end

@implementation SoftCommandBuffer

- (id)initWithQueue:(SoftCommandQueue*)queue retainedReferences:(BOOL)retains {
  if (!(self = [super init])) return nil;
  list_ = new std::shared_ptr<CommandList>(std::make_shared<CommandList>());
  references_ = new std::set<id>;
  unretained_ = new std::set<std::shared_ptr<soft_metal::Resource>>;
  queue_ = [queue retain];
  soft_metal::count([](soft_metal::Counters& counters) { ++counters.made; });
  if (!(*queue_->queue_)->make())
    soft_metal::violate(Rule::queue_full, [queue quoted],
                        "expected a command buffer that is committed among " +
                            std::to_string(soft_metal::Queue::kMost) + ", got none");
  retains_ = retains;
  return self;
}

- (void)dealloc {
  if (!(*list_)->is_committed()) {
    if ((*list_)->status() == CommandList::Status::enqueued)
      soft_metal::violate(Rule::never_committed, [self quoted], "expected commit before release",
                          /*warning=*/true);
    else
      soft_metal::count([](soft_metal::Counters& counters) { ++counters.dropped; });
    (*queue_->queue_)->abandon(list_->get());
  }
  [self dropReferences];
  [error_ release];
  delete list_;
  delete references_;
  delete unretained_;
  [queue_ release];
  [super dealloc];
}

- (void)use:(id)object resource:(std::shared_ptr<soft_metal::Resource>)resource {
  if (retains_) {
    if (references_->insert(object).second) [object retain];
  } else if (unretained_->insert(resource).second) {
    ++resource->unretained_uses;
  }
}

- (void)dropReferences {
  for (id object : *references_) [object release];
  references_->clear();
  for (const auto& resource : *unretained_) {
    if (resource->released)
      (*list_)->fail([self quoted] + ": a resource was released before it had finished");
    --resource->unretained_uses;
  }
  unretained_->clear();
}

- (void)violate:(Rule)rule object:(const std::string&)object text:(const std::string&)text {
  (*list_)->fail(soft_metal::violate(rule, object, text));
}

// Whether commands may be added now.
- (BOOL)mayEncode:(const char*)call {
  if ((*list_)->is_committed()) {
    [self violate:Rule::committed object:[self quoted] text:std::string("got ") + call + " after commit"];
    return NO;
  }
  if (open_) {
    [self violate:Rule::encoder_open
           object:[self quoted]
             text:std::string("expected endEncoding before ") + call + ", got an open " + [open_ quoted]];
    return NO;
  }
  return YES;
}

- (id<MTLComputeCommandEncoder>)encoderWithConcurrency:(BOOL)concurrent
                                            attachment:
                                                (MTLComputePassSampleBufferAttachmentDescriptor*)attachment {
  if (![self mayEncode:"a compute command encoder"]) return nil;
  open_ = [[SoftComputeCommandEncoder alloc] initWithCommandBuffer:self
                                                        concurrent:concurrent
                                                        attachment:attachment];
  return [open_ autorelease];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self encoderWithConcurrency:NO attachment:nil];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
  return [self encoderWithConcurrency:dispatchType == MTLDispatchTypeConcurrent attachment:nil];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  return [self encoderWithConcurrency:descriptor.dispatchType == MTLDispatchTypeConcurrent
                           attachment:[descriptor.sampleBufferAttachments objectAtIndexedSubscript:0]];
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  if (![self mayEncode:"encodeWaitForEvent"]) return;
  SoftSharedEvent* shared = (SoftSharedEvent*)event;
  [self use:shared resource:*shared->event_];
  (*list_)->add(soft_metal::Wait{*shared->event_, value});
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  if (![self mayEncode:"encodeSignalEvent"]) return;
  SoftSharedEvent* shared = (SoftSharedEvent*)event;
  [self use:shared resource:*shared->event_];
  (*list_)->add(soft_metal::Signal{*shared->event_, value});
}

- (void)enqueue {
  if ((*list_)->status() != CommandList::Status::not_enqueued) {
    [self violate:Rule::committed object:[self quoted] text:"got enqueue after enqueue or commit"];
    return;
  }
  (*queue_->queue_)->enqueue(*list_);
}

- (void)commit {
  if (![self mayEncode:"commit"] && (*list_)->is_committed()) return;
  (*list_)->label = soft_text(label_);
  SoftCommandBuffer* commands = self;  // GCC loses self when it names instance variables in a lambda
  (*list_)->drop_references = [commands] {
    const SoftPool pool;
    [commands dropReferences];
    [commands release];
  };
  [self retain];
  soft_metal::count([](soft_metal::Counters& counters) { ++counters.command_buffers; });
  (*queue_->queue_)->commit(*list_);
}

// Whether the command buffer will ever get there.
- (BOOL)mayWait:(const char*)call {
  if ((*list_)->is_committed()) return YES;
  [self violate:Rule::wait_before_commit
         object:[self quoted]
           text:std::string("expected commit before ") + call];
  return NO;
}

- (void)waitUntilScheduled {
  if ([self mayWait:"waitUntilScheduled"]) (*list_)->wait_scheduled();
}

- (void)waitUntilCompleted {
  if (![self mayWait:"waitUntilCompleted"]) return;
  if ((*queue_->queue_)->drained_by(list_->get()))
    soft_metal::count([](soft_metal::Counters& counters) { ++counters.round_trips; });
  (*list_)->wait_completed();
}

- (MTLCommandBufferStatus)status {
  return MTLCommandBufferStatus((*list_)->status());
}

- (NSError*)error {
  const auto failure = (*list_)->failure();
  if (failure && !error_) {
    const SoftPool pool;
    NSError* error = nil;
    soft_error(&error, MTLCommandBufferErrorDomain, failure->code, failure->text);
    error_ = [error retain];
  }
  return error_;
}

- (CFTimeInterval)GPUStartTime {
  return (*list_)->start_time();
}

- (CFTimeInterval)GPUEndTime {
  return (*list_)->end_time();
}

@end
