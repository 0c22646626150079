// Rules about barriers, and about when encoders and command buffers may be used.
#include "soft_case.h"

namespace {

id<MTLComputeCommandEncoder> concurrent(id<MTLCommandBuffer> commands) {
  return [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
}

}  // namespace

NATIVE_TEST(soft_missing_barrier_write_read) {
  breaks(Rule::missing_barrier, [](Soft& soft) {
    id<MTLBuffer> a = soft.buffer(10, 1), b = soft.buffer(10, 2), y = soft.buffer(10), z = soft.buffer(10);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = concurrent(commands);
    encoder.label = @"layer";
    encode_add(soft, encoder, a, b, y, 10);
    encode_add(soft, encoder, y, b, z, 10);
    [encoder endEncoding];
    const std::string text = soft.failure(commands);
    CHECK(text.find("MTLComputeCommandEncoder 'layer'") != std::string::npos);
    CHECK(text.find("between add writes y and add reads a, which share 40 bytes") != std::string::npos);
  });
  keeps([](Soft& soft) {
    id<MTLBuffer> a = soft.buffer(10, 1), b = soft.buffer(10, 2), y = soft.buffer(10), z = soft.buffer(10);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = concurrent(commands);
    encode_add(soft, encoder, a, b, y, 10);
    [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
    encode_add(soft, encoder, y, b, z, 10);
    [encoder endEncoding];
    soft.finish(commands);
    CHECK_EQ(floats(z)[9], 5.0f);
    CHECK_EQ(soft_metal::counters().barriers, 1u);
    CHECK_EQ(soft_metal::counters().needless_barriers, 0u);
  });
}

NATIVE_TEST(soft_missing_barrier_read_write_and_write_write) {
  for (const bool same_output : {false, true})
    breaks(Rule::missing_barrier, [&](Soft& soft) {
      id<MTLBuffer> a = soft.buffer(10, 1), b = soft.buffer(10, 2), y = soft.buffer(10);
      id<MTLCommandBuffer> commands = soft.commands();
      id<MTLComputeCommandEncoder> encoder = concurrent(commands);
      encode_add(soft, encoder, a, b, y, 10);
      encode_add(soft, encoder, b, b, same_output ? y : a, 10);
      [encoder endEncoding];
      soft.failure(commands);
    });
  keeps([](Soft& soft) {  // both only read a and b
    id<MTLBuffer> a = soft.buffer(10, 1), b = soft.buffer(10, 2);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = concurrent(commands);
    encode_add(soft, encoder, a, b, soft.buffer(10), 10);
    encode_add(soft, encoder, b, a, soft.buffer(10), 10);
    [encoder endEncoding];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_missing_barrier_is_about_bytes) {
  const auto halves = [](Soft& soft, NSUInteger second) {
    id<MTLBuffer> a = soft.buffer(10, 1), y = soft.buffer(20);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = concurrent(commands);
    encode_add(soft, encoder, a, a, y, 10);
    [encoder setBufferOffset:second * sizeof(float) atIndex:2];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
    [encoder endEncoding];
    return commands;
  };
  breaks(Rule::missing_barrier, [&](Soft& soft) {
    CHECK(soft.failure(halves(soft, 9)).find("share 4 bytes") != std::string::npos);
  });
  keeps([&](Soft& soft) { soft.finish(halves(soft, 10)); });
}

NATIVE_TEST(soft_missing_barrier_of_other_resources) {
  const auto with_barrier = [](Soft& soft, bool right) {
    id<MTLBuffer> a = soft.buffer(10, 1), y = soft.buffer(10), z = soft.buffer(10);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = concurrent(commands);
    encode_add(soft, encoder, a, a, y, 10);
    const id<MTLResource> resources[] = {right ? y : z};
    [encoder memoryBarrierWithResources:resources count:1];
    encode_add(soft, encoder, y, a, z, 10);
    [encoder endEncoding];
    return commands;
  };
  breaks(Rule::missing_barrier, [&](Soft& soft) { soft.failure(with_barrier(soft, false)); });
  keeps([&](Soft& soft) { soft.finish(with_barrier(soft, true)); });
}

NATIVE_TEST(soft_no_barrier_needed) {
  keeps([](Soft& soft) {  // a serial encoder orders its dispatches, and passes are ordered
    id<MTLBuffer> a = soft.buffer(10, 1), y = soft.buffer(10), z = soft.buffer(10);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_add(soft, encoder, a, a, y, 10);
    encode_add(soft, encoder, y, a, y, 10);
    [encoder endEncoding];
    encoder = concurrent(commands);
    encode_add(soft, encoder, y, y, z, 10);
    [encoder endEncoding];
    soft.finish(commands);
    CHECK_EQ(floats(z)[0], 6.0f);
  });
  keeps([](Soft& soft) {
    id<MTLBuffer> a = soft.buffer(10, 1);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = concurrent(commands);
    encode_add(soft, encoder, a, a, soft.buffer(10), 10);
    [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
    encode_add(soft, encoder, a, a, soft.buffer(10), 10);
    [encoder endEncoding];
    soft.finish(commands);
    CHECK_EQ(soft_metal::counters().needless_barriers, 1u);
  });
}

NATIVE_TEST(soft_encoder_ended) {
  breaks(Rule::encoder_ended, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder endEncoding];
    [encoder setBuffer:soft.buffer(1) offset:0 atIndex:0];
    soft.failure(commands);
  });
  breaks(Rule::encoder_ended, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder endEncoding];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {  // another encoder of the same command buffer
    id<MTLCommandBuffer> commands = soft.commands();
    [[commands computeCommandEncoder] endEncoding];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBuffer:soft.buffer(1) offset:0 atIndex:0];
    [encoder endEncoding];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_encoder_open_at_commit) {
  breaks(Rule::encoder_open, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    [commands computeCommandEncoder];
    soft.failure(commands);
  });
  keeps([](Soft& soft) { soft.finish(soft.commands()); });
}

NATIVE_TEST(soft_two_open_encoders) {
  breaks(Rule::encoder_open, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    CHECK([commands computeCommandEncoder] == nil);
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {  // of two command buffers
    id<MTLCommandBuffer> one = soft.commands(), two = soft.commands();
    id<MTLComputeCommandEncoder> first = [one computeCommandEncoder], second = [two computeCommandEncoder];
    [first endEncoding];
    [second endEncoding];
    soft.finish(one);
    soft.finish(two);
  });
}

NATIVE_TEST(soft_event_in_an_open_encoder) {
  breaks(Rule::encoder_open, [](Soft& soft) {
    id<MTLSharedEvent> event = soft.own([soft.device() newSharedEvent]);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [commands encodeSignalEvent:event value:1];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLSharedEvent> event = soft.own([soft.device() newSharedEvent]);
    id<MTLCommandBuffer> commands = soft.commands();
    [[commands computeCommandEncoder] endEncoding];
    [commands encodeSignalEvent:event value:1];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_encoder_released_before_its_end) {
  breaks(Rule::encoder_open, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    NSAutoreleasePool* pool = [[NSAutoreleasePool alloc] init];
    [commands computeCommandEncoder];
    [pool release];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    NSAutoreleasePool* pool = [[NSAutoreleasePool alloc] init];
    [[commands computeCommandEncoder] endEncoding];
    [pool release];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_debug_groups) {
  breaks(Rule::debug_groups, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder popDebugGroup];
    [encoder endEncoding];
    soft.failure(commands);
  });
  breaks(Rule::debug_groups, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder pushDebugGroup:@"layer"];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder pushDebugGroup:@"layer"];
    [encoder insertDebugSignpost:@"here"];
    [encoder popDebugGroup];
    [encoder endEncoding];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_use_after_commit) {
  breaks(Rule::committed, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    soft.finish(commands);
    CHECK([commands computeCommandEncoder] == nil);
    CHECK_EQ(commands.status, MTLCommandBufferStatusError);
  });
  breaks(Rule::committed, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    soft.finish(commands);
    [commands commit];
  });
  breaks(Rule::committed, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    [commands enqueue];
    [commands enqueue];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    [commands enqueue];
    [[commands computeCommandEncoder] endEncoding];
    soft.finish(commands);
    [commands waitUntilScheduled];
    [commands waitUntilCompleted];
  });
}

NATIVE_TEST(soft_never_committed) {
  breaks(Rule::never_committed, [](Soft& soft) {  // its place in the queue is given up
    [soft.commands() enqueue];
    NSAutoreleasePool* pool = [[NSAutoreleasePool alloc] init];
    [soft.commands() enqueue];
    [pool release];
  });
  keeps([](Soft& soft) {
    NSAutoreleasePool* pool = [[NSAutoreleasePool alloc] init];
    [[soft.commands() computeCommandEncoder] endEncoding];
    [pool release];
    CHECK_EQ(soft_metal::counters().dropped, 1u);
    soft.finish(soft.commands());
    CHECK_EQ(soft_metal::counters().dropped, 1u);
  });
}

NATIVE_TEST(soft_queue_full) {
  breaks(Rule::queue_full, [](Soft& soft) {
    for (int i = 0; i < 65; ++i) soft.commands();
  });
  keeps([](Soft& soft) {  // those that are dropped or finished make room
    for (int i = 0; i < 63; ++i) soft.commands();
    for (int i = 0; i < 200; ++i) {
      NSAutoreleasePool* pool = [[NSAutoreleasePool alloc] init];
      id<MTLCommandBuffer> commands = soft.commands();
      if (i % 2) [commands commit];
      [pool release];
    }
    soft.finish(soft.commands());
    CHECK_EQ(soft_metal::counters().command_buffers, 101u);
    CHECK_EQ(soft_metal::counters().dropped, 100u);
    CHECK_EQ(soft_metal::counters().made, 264u);
  });
}

NATIVE_TEST(soft_wait_before_commit) {
  breaks(Rule::wait_before_commit, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    [commands waitUntilCompleted];
    [commands waitUntilScheduled];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    [commands commit];
    [commands waitUntilScheduled];
    [commands waitUntilCompleted];
  });
}
