// Rules about what is bound when a kernel is dispatched. Each is broken, and kept by a look-alike.
#include "soft_case.h"

namespace {

struct AddArguments {
  id<MTLBuffer> a, b, y;
  NSUInteger offset = 0;
  uint32_t count = 10;
  MTLSize groups = {1, 1, 1};
  MTLSize threads = {kThreads, 1, 1};
};

// y = a + b with everything as given; a nil buffer is not bound. Ends the encoder.
void add(Soft& soft, id<MTLCommandBuffer> commands, const AddArguments& arguments) {
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:soft.pipeline(@"add")];
  if (arguments.a) [encoder setBuffer:arguments.a offset:arguments.offset atIndex:0];
  if (arguments.b) [encoder setBuffer:arguments.b offset:0 atIndex:1];
  if (arguments.y) [encoder setBuffer:arguments.y offset:0 atIndex:2];
  [encoder setBytes:&arguments.count length:sizeof arguments.count atIndex:3];
  [encoder dispatchThreadgroups:arguments.groups threadsPerThreadgroup:arguments.threads];
  [encoder endEncoding];
}

// The kernel `specialised`: its last argument exists where constant 0 is true.
void specialised(Soft& soft, id<MTLCommandBuffer> commands, bool doubled, id<MTLBuffer> extra) {
  MTLFunctionConstantValues* values = soft.own([[MTLFunctionConstantValues alloc] init]);
  [values setConstantValue:&doubled type:MTLDataTypeBool atIndex:0];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  const uint32_t count = 7;
  [encoder setComputePipelineState:soft.pipeline(@"specialised", values)];
  [encoder setBuffer:soft.buffer(count, 1) offset:0 atIndex:0];
  [encoder setBuffer:soft.buffer(count) offset:0 atIndex:1];
  [encoder setBytes:&count length:sizeof count atIndex:2];
  [encoder setBuffer:extra offset:0 atIndex:3];
  [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(count, 1, 1)];
  [encoder endEncoding];
}

// The kernel `threadgroup_argument`, which wants 256 bytes at [[threadgroup(0)]]; negative: unset.
void threadgroup_memory(Soft& soft, id<MTLCommandBuffer> commands, int64_t length) {
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  const uint32_t groups = 3;
  [encoder setComputePipelineState:soft.pipeline(@"threadgroup_argument")];
  [encoder setBuffer:soft.buffer(groups * 64, 1) offset:0 atIndex:0];
  [encoder setBuffer:soft.buffer(groups) offset:0 atIndex:1];
  [encoder setBytes:&groups length:sizeof groups atIndex:2];
  if (length >= 0) [encoder setThreadgroupMemoryLength:NSUInteger(length) atIndex:0];
  [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
  [encoder endEncoding];
}

}  // namespace

NATIVE_TEST(soft_unbound_argument) {
  breaks(Rule::unbound_argument, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands(@"missing");
    add(soft, commands, {soft.buffer(10), nil, soft.buffer(10)});
    const std::string text = soft.failure(commands);
    CHECK(text.find("MTLCommandBuffer 'missing'") != std::string::npos);
    CHECK(text.find("add: expected b at index 1, got nothing") != std::string::npos);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(10), soft.buffer(10), soft.buffer(10)});
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_unbound_argument_under_a_constant) {
  breaks(Rule::unbound_argument, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    specialised(soft, commands, /*doubled=*/true, nil);
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    specialised(soft, commands, /*doubled=*/false, nil);
    specialised(soft, commands, /*doubled=*/true, soft.buffer(7));
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_offset_of_nothing) {
  breaks(Rule::unbound_argument, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBufferOffset:16 atIndex:0];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBuffer:soft.buffer(10) offset:0 atIndex:0];
    [encoder setBufferOffset:16 atIndex:0];
    [encoder endEncoding];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_argument_too_small) {
  breaks(Rule::argument_size, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(10), soft.buffer(9), soft.buffer(10)});
    CHECK(soft.failure(commands).find("b: expected at least 10 elements of 4 bytes, got 36 bytes") !=
          std::string::npos);
  });
  breaks(Rule::argument_size, [](Soft& soft) {  // the offset counts
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(10), soft.buffer(10), soft.buffer(10), /*offset=*/4});
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(11), soft.buffer(10), soft.buffer(12), /*offset=*/4});
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_value_too_small) {
  const auto add_with_count = [](Soft& soft, id<MTLCommandBuffer> commands, NSUInteger bytes) {
    const uint64_t count = 10;
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:soft.pipeline(@"add")];
    for (NSUInteger i = 0; i < 3; ++i) [encoder setBuffer:soft.buffer(10) offset:0 atIndex:i];
    [encoder setBytes:&count length:bytes atIndex:3];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
    [encoder endEncoding];
  };
  breaks(Rule::argument_size, [&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add_with_count(soft, commands, 2);
    CHECK(soft.failure(commands).find("count: expected 4 bytes, got 2") != std::string::npos);
  });
  keeps([&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add_with_count(soft, commands, 8);
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_argument_requirement) {
  breaks(Rule::argument_requirement, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(10), soft.buffer(10), soft.buffer(10), /*offset=*/0, /*count=*/0});
    CHECK(soft.failure(commands).find("requires count > 0") != std::string::npos);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(10), soft.buffer(10), soft.buffer(10), /*offset=*/0, /*count=*/1});
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_offset) {
  breaks(Rule::offset, [](Soft& soft) {  // floats lie on multiples of 4
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(20), soft.buffer(10), soft.buffer(10), /*offset=*/6});
    CHECK(soft.failure(commands).find("a: expected an offset that is a multiple of 4, got 6") !=
          std::string::npos);
  });
  breaks(Rule::offset, [](Soft& soft) {  // past the end
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBuffer:soft.buffer(20) offset:80 atIndex:0];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(20), soft.buffer(10), soft.buffer(10), /*offset=*/8});
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_set_bytes_length) {
  const auto set_bytes = [](Soft& soft, id<MTLCommandBuffer> commands, NSUInteger length) {
    const std::vector<uint8_t> bytes(5000);
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBytes:bytes.data() length:length atIndex:0];
    [encoder endEncoding];
  };
  for (const NSUInteger length : {0, 4097})
    breaks(Rule::set_bytes_length, [&](Soft& soft) {
      id<MTLCommandBuffer> commands = soft.commands();
      set_bytes(soft, commands, length);
      soft.failure(commands);
    });
  keeps([&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    set_bytes(soft, commands, 4096);
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_binding_index) {
  breaks(Rule::binding_index, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBuffer:soft.buffer(1) offset:0 atIndex:31];
    [encoder setThreadgroupMemoryLength:16 atIndex:31];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setBuffer:soft.buffer(1) offset:0 atIndex:30];
    [encoder setThreadgroupMemoryLength:16 atIndex:30];
    [encoder endEncoding];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_pipeline_missing) {
  breaks(Rule::pipeline_missing, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    [encoder endEncoding];
    soft.failure(commands);
  });
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:soft.pipeline(@"add")];
    [encoder endEncoding];
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_threadgroup_size) {
  const MTLSize one = {1, 1, 1};
  const struct {
    MTLSize groups, threads;
  } wrong[] = {{one, {0, 1, 1}},
               {one, {1025, 1, 1}},
               {one, {64, 32, 1}},
               {{0, 1, 1}, {kThreads, 1, 1}},
               {{1 << 24, 1, 1}, {kThreads, 1, 1}}};
  for (const auto& geometry : wrong)
    breaks(Rule::threadgroup_size, [&](Soft& soft) {
      id<MTLCommandBuffer> commands = soft.commands();
      add(soft, commands,
          {soft.buffer(10), soft.buffer(10), soft.buffer(10), 0, 10, geometry.groups, geometry.threads});
      soft.failure(commands);
    });
  keeps([&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands, {soft.buffer(10), soft.buffer(10), soft.buffer(10), 0, 10, one, {1024, 1, 1}});
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_threadgroup_size_of_the_pipeline) {
  const auto bounded = [](Soft& soft, id<MTLCommandBuffer> commands, NSUInteger most, BOOL multiple,
                          NSUInteger threads) {
    MTLComputePipelineDescriptor* descriptor = soft.own([[MTLComputePipelineDescriptor alloc] init]);
    id<MTLFunction> function = soft.own([soft.library() newFunctionWithName:@"add"]);
    descriptor.computeFunction = function;
    descriptor.maxTotalThreadsPerThreadgroup = most;
    descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth = multiple;
    id<MTLComputePipelineState> pipeline =
        soft.own([soft.device() newComputePipelineStateWithDescriptor:descriptor
                                                              options:MTLPipelineOptionNone
                                                           reflection:nullptr
                                                                error:nullptr]);
    CHECK_EQ(pipeline.maxTotalThreadsPerThreadgroup, most);
    const uint32_t count = 10;
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:pipeline];
    for (NSUInteger i = 0; i < 3; ++i) [encoder setBuffer:soft.buffer(count) offset:0 atIndex:i];
    [encoder setBytes:&count length:sizeof count atIndex:3];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
    [encoder endEncoding];
  };
  breaks(Rule::threadgroup_size, [&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    bounded(soft, commands, 128, NO, 129);
    soft.failure(commands);
  });
  breaks(Rule::threadgroup_size, [&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    bounded(soft, commands, 128, YES, 48);
    soft.failure(commands);
  });
  keeps([&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    bounded(soft, commands, 128, YES, 64);
    bounded(soft, commands, 128, NO, 48);
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_threadgroup_memory) {
  for (const int64_t length : {int64_t(-1), int64_t(0), int64_t(240), int64_t(264), int64_t(32784)})
    breaks(Rule::threadgroup_memory, [&](Soft& soft) {
      id<MTLCommandBuffer> commands = soft.commands();
      threadgroup_memory(soft, commands, length);
      soft.failure(commands);
    });
  breaks(Rule::threadgroup_memory, [&](Soft& soft) {  // declared and bound memory count together
    auto options = soft_metal::options();
    options.max_threadgroup_bytes = 255;
    soft_metal::set_options(options);
    id<MTLCommandBuffer> commands = soft.commands();
    threadgroup_memory(soft, commands, 256);
    soft.failure(commands);
  });
  keeps([&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    threadgroup_memory(soft, commands, 256);
    threadgroup_memory(soft, commands, 32768);
    soft.finish(commands);
  });
}

NATIVE_TEST(soft_untracked_write) {
  const auto options = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;
  breaks(Rule::untracked_write, [&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands,
        {soft.buffer(10), soft.buffer(10), soft.own([soft.device() newBufferWithLength:40 options:options])});
    soft.failure(commands);
  });
  keeps([&](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    add(soft, commands,
        {soft.own([soft.device() newBufferWithLength:40 options:options]), soft.buffer(10), soft.buffer(10)});
    soft.finish(commands);
  });
}
