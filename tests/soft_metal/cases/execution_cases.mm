// What works: commands run the reference kernels, in order, later than they are committed.
#include <unistd.h>

#include "soft_case.h"

NATIVE_TEST(soft_runs_a_kernel) {
  keeps([](Soft& soft) {
    const uint32_t count = 1000;
    id<MTLBuffer> a = soft.buffer(count), b = soft.buffer(count, 0.5f), y = soft.buffer(count + 1, -1);
    for (uint32_t i = 0; i < count; ++i) floats(a)[i] = float(i);
    id<MTLCommandBuffer> commands = soft.commands();
    CHECK_EQ(commands.status, MTLCommandBufferStatusNotEnqueued);
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_add(soft, encoder, a, b, y, count);
    [encoder endEncoding];
    soft.finish(commands);
    for (uint32_t i = 0; i < count; ++i) CHECK_EQ(floats(y)[i], float(i) + 0.5f);
    CHECK_EQ(floats(y)[count], -1.0f);
    CHECK(commands.GPUStartTime > 0 && commands.GPUEndTime >= commands.GPUStartTime);
    CHECK_EQ(soft_metal::counters().dispatches, 1u);
  });
}

NATIVE_TEST(soft_values_are_taken_when_they_are_set) {
  keeps([](Soft& soft) {  // bytes are copied by setBytes; a value in a buffer is read when the kernel runs
    id<MTLBuffer> a = soft.buffer(10, 1), y = soft.buffer(10), count = soft.buffer(1);
    uint32_t number = 3;
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_add(soft, encoder, a, a, y, number);
    number = 5;
    [encoder setBuffer:count offset:0 atIndex:3];
    [encoder setBufferOffset:5 * sizeof(float) atIndex:2];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
    [encoder endEncoding];
    *static_cast<uint32_t*>([count contents]) = 2;
    soft.finish(commands);
    const float expected[] = {2, 2, 2, 0, 0, 2, 2, 0, 0, 0};
    for (int i = 0; i < 10; ++i) CHECK_EQ(floats(y)[i], expected[i]);
  });
}

NATIVE_TEST(soft_function_constants_reach_the_kernel) {
  keeps([](Soft& soft) {
    const bool doubled = true;
    const uint32_t bias = 7, count = 5;
    MTLFunctionConstantValues* values = soft.own([[MTLFunctionConstantValues alloc] init]);
    [values setConstantValue:&doubled type:MTLDataTypeBool atIndex:0];
    [values setConstantValue:&bias type:MTLDataTypeUInt atIndex:1201];
    id<MTLBuffer> out = soft.buffer(count);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:soft.pipeline(@"specialised", values)];
    [encoder setBuffer:soft.buffer(count, 4) offset:0 atIndex:0];
    [encoder setBuffer:out offset:0 atIndex:1];
    [encoder setBytes:&count length:sizeof count atIndex:2];
    [encoder setBuffer:soft.buffer(count, 100) offset:0 atIndex:3];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(count, 1, 1)];
    [encoder endEncoding];
    soft.finish(commands);
    const float table[] = {1, 2, 4, 8, 1};
    for (uint32_t i = 0; i < count; ++i) CHECK_EQ(floats(out)[i], 2 * (4 * 0.5f + table[i]) + 100 + 7);
  });
}

NATIVE_TEST(soft_threadgroup_memory_of_the_host) {
  keeps([](Soft& soft) {
    const uint32_t groups = 3;
    id<MTLBuffer> out = soft.buffer(groups);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:soft.pipeline(@"threadgroup_argument")];
    [encoder setBuffer:soft.buffer(groups * 64, 0.25f) offset:0 atIndex:0];
    [encoder setBuffer:out offset:0 atIndex:1];
    [encoder setBytes:&groups length:sizeof groups atIndex:2];
    [encoder setThreadgroupMemoryLength:256 atIndex:0];
    [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
    [encoder endEncoding];
    soft.finish(commands);
    for (uint32_t i = 0; i < groups; ++i) CHECK_EQ(floats(out)[i], 16.0f);
  });
}

NATIVE_TEST(soft_commit_does_not_wait) {
  keeps([](Soft& soft) {
    id<MTLSharedEvent> event = soft.own([soft.device() newSharedEvent]);
    id<MTLBuffer> a = soft.buffer(4, 1), y = soft.buffer(4);
    id<MTLCommandBuffer> commands = soft.commands();
    [commands encodeWaitForEvent:event value:3];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_add(soft, encoder, a, a, y, 4);
    [encoder endEncoding];
    [commands encodeSignalEvent:event value:4];
    [commands commit];
    [commands waitUntilScheduled];
    CHECK_EQ(commands.status, MTLCommandBufferStatusScheduled);
    CHECK_EQ(floats(y)[0], 0.0f);
    event.signaledValue = 3;
    [commands waitUntilCompleted];
    CHECK_EQ(commands.status, MTLCommandBufferStatusCompleted);
    CHECK_EQ(event.signaledValue, 4u);
    CHECK_EQ(floats(y)[0], 2.0f);
  });
}

NATIVE_TEST(soft_event_that_nobody_signals) {
  keeps([](Soft& soft) {
    auto options = soft_metal::options();
    options.event_timeout_ms = 20;
    soft_metal::set_options(options);
    id<MTLSharedEvent> event = soft.own([soft.device() newSharedEvent]);
    id<MTLCommandBuffer> commands = soft.commands();
    [commands encodeWaitForEvent:event value:1];
    CHECK(soft.failure(commands).find("Timeout") != std::string::npos);
    CHECK_EQ(commands.error.code, NSInteger(MTLCommandBufferErrorTimeout));
  });
}

NATIVE_TEST(soft_queues_run_at_the_same_time) {
  keeps([](Soft& soft) {
    id<MTLSharedEvent> event = soft.own([soft.device() newSharedEvent]);
    id<MTLCommandQueue> other = soft.own([soft.device() newCommandQueue]);
    id<MTLCommandBuffer> waits = soft.commands(), signals = [other commandBuffer];
    [waits encodeWaitForEvent:event value:1];
    [signals encodeSignalEvent:event value:1];
    [waits commit];
    soft.finish(signals);
    [waits waitUntilCompleted];
    CHECK_EQ(waits.status, MTLCommandBufferStatusCompleted);
  });
}

NATIVE_TEST(soft_enqueue_decides_the_order) {
  keeps([](Soft& soft) {
    id<MTLBuffer> a = soft.buffer(4, 1), y = soft.buffer(4);
    id<MTLCommandBuffer> first = soft.commands(@"first"), second = soft.commands(@"second");
    [first enqueue];
    CHECK_EQ(first.status, MTLCommandBufferStatusEnqueued);
    id<MTLComputeCommandEncoder> encoder = [second computeCommandEncoder];
    encode_add(soft, encoder, y, y, y, 4);
    [encoder endEncoding];
    [second commit];
    encoder = [first computeCommandEncoder];
    encode_add(soft, encoder, a, a, y, 4);
    [encoder endEncoding];
    [first commit];
    [second waitUntilCompleted];
    CHECK_EQ(first.status, MTLCommandBufferStatusCompleted);
    CHECK_EQ(floats(y)[3], 4.0f);
  });
}

NATIVE_TEST(soft_timestamps) {
  keeps([](Soft& soft) {
    CHECK([soft.device() supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary]);
    CHECK(![soft.device() supportsCounterSampling:MTLCounterSamplingPointAtDispatchBoundary]);
    id<MTLCounterSet> set = [soft.device().counterSets objectAtIndex:0];
    CHECK([set.name isEqualToString:MTLCommonCounterSetTimestamp]);
    id<MTLCounter> counter = [set.counters objectAtIndex:0];
    CHECK([counter.name isEqualToString:MTLCommonCounterTimestamp]);

    MTLCounterSampleBufferDescriptor* descriptor = soft.own([[MTLCounterSampleBufferDescriptor alloc] init]);
    descriptor.counterSet = set;
    descriptor.label = @"times";
    descriptor.sampleCount = 3;
    id<MTLCounterSampleBuffer> samples =
        soft.own([soft.device() newCounterSampleBufferWithDescriptor:descriptor error:nullptr]);
    CHECK_EQ(samples.sampleCount, 3u);
    MTLComputePassDescriptor* pass = [MTLComputePassDescriptor computePassDescriptor];
    pass.dispatchType = MTLDispatchTypeConcurrent;
    MTLComputePassSampleBufferAttachmentDescriptor* attachment =
        [pass.sampleBufferAttachments objectAtIndexedSubscript:0];
    attachment.sampleBuffer = samples;
    attachment.startOfEncoderSampleIndex = 0;
    attachment.endOfEncoderSampleIndex = 1;

    MTLTimestamp cpu = 0, before = 0, after = 0;
    [soft.device() sampleTimestamps:&cpu gpuTimestamp:&before];
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDescriptor:pass];
    encode_add(soft, encoder, soft.buffer(999), soft.buffer(999), soft.buffer(999), 999);
    [encoder endEncoding];
    soft.finish(commands);
    [soft.device() sampleTimestamps:&cpu gpuTimestamp:&after];

    NSData* data = [samples resolveCounterRange:NSMakeRange(0, 3)];
    CHECK_EQ([data length], 3 * sizeof(MTLCounterResultTimestamp));
    const auto* times = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
    CHECK(before < times[0].timestamp && times[0].timestamp < times[1].timestamp &&
          times[1].timestamp < after);
    CHECK_EQ(times[2].timestamp, MTLCounterErrorValue);

    NSError* error = nil;
    descriptor.sampleCount = 4097;
    CHECK([soft.device() newCounterSampleBufferWithDescriptor:descriptor error:&error] == nil);
    CHECK([[error localizedDescription] hasPrefix:@"Invalid sample buffer length: 32776 B"]);
    descriptor.sampleCount = 4096;
    for (int i = 1; i < 32; ++i)
      CHECK(soft.own([soft.device() newCounterSampleBufferWithDescriptor:descriptor error:&error]) != nil);
    CHECK([soft.device() newCounterSampleBufferWithDescriptor:descriptor error:&error] == nil);
  });
  keeps([](Soft& soft) {
    auto options = soft_metal::options();
    options.counter_sampling = false;
    soft_metal::set_options(options);
    NSError* error = nil;
    MTLCounterSampleBufferDescriptor* descriptor = soft.own([[MTLCounterSampleBufferDescriptor alloc] init]);
    descriptor.sampleCount = 3;
    CHECK(soft.device().counterSets == nil);
    CHECK(![soft.device() supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary]);
    CHECK([soft.device() newCounterSampleBufferWithDescriptor:descriptor error:&error] == nil);
    CHECK(error != nil);
  });
}

NATIVE_TEST(soft_checked_kernels) {
  const auto past_end = [](Soft& soft, NSString* name) {
    auto options = soft_metal::options();
    options.checked = true;
    soft_metal::set_options(options);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:soft.pipeline(name)];
    [encoder setBuffer:soft.buffer(32) offset:0 atIndex:0];
    [encoder setBuffer:soft.buffer(32) offset:0 atIndex:1];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    [encoder endEncoding];
    return commands;
  };
  breaks(Rule::kernel, [&](Soft& soft) {
    CHECK(soft.failure(past_end(soft, @"read_past_end")).find("read of 4 bytes") != std::string::npos);
  });
  keeps([&](Soft& soft) { soft.finish(past_end(soft, @"read_past_end_ok")); });
}

NATIVE_TEST(soft_device) {
  keeps([](Soft& soft) {
    CHECK([soft.device().name isEqualToString:@"Soft Metal"]);
    CHECK(soft.device().hasUnifiedMemory);
    CHECK_EQ(soft.device().maxThreadsPerThreadgroup.width, 1024u);
    CHECK_EQ(soft.device().maxThreadgroupMemoryLength, 32768u);
    CHECK([soft.device() supportsFamily:MTLGPUFamilyApple7]);
    CHECK(![soft.device() supportsFamily:MTLGPUFamilyApple9]);
    NSArray* devices = MTLCopyAllDevices();
    CHECK_EQ([devices count], 1u);
    [devices release];
    auto options = soft_metal::options();
    options.present = false;
    soft_metal::set_options(options);
    CHECK(MTLCreateSystemDefaultDevice() == nil);
  });
}
