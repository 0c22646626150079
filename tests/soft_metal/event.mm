#include "objects.h"

@implementation SoftSharedEvent

- (id)init {
  if (!(self = [super init])) return nil;
  event_ = new std::shared_ptr<soft_metal::Event>(std::make_shared<soft_metal::Event>());
  return self;
}

- (void)dealloc {
  (*event_)->released = true;
  if ((*event_)->unretained_uses > 0)
    soft_metal::violate(soft_metal::Rule::released_in_use, [self quoted],
                        "expected it to live until the command buffer without references has finished");
  delete event_;
  [super dealloc];
}

- (uint64_t)signaledValue {
  return (*event_)->value();
}

- (void)setSignaledValue:(uint64_t)value {
  (*event_)->signal(value);
}

@end
