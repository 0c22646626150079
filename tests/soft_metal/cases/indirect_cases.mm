// Dispatches whose number of threadgroups is in memory, and waits that leave the GPU without work.
#include <initializer_list>

#include "soft_case.h"

namespace {

uint32_t* words(id<MTLBuffer> buffer) { return static_cast<uint32_t*>([buffer contents]); }

// y = a + a over 10 floats, with as many threadgroups as `groups` has at `offset`.
void encode_indirect(Soft& soft, id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> a, id<MTLBuffer> y,
                     id<MTLBuffer> groups, NSUInteger offset = 0) {
  const uint32_t count = 10;
  [encoder setComputePipelineState:soft.pipeline(@"add")];
  [encoder setBuffer:a offset:0 atIndex:0];
  [encoder setBuffer:a offset:0 atIndex:1];
  [encoder setBuffer:y offset:0 atIndex:2];
  [encoder setBytes:&count length:sizeof count atIndex:3];
  [encoder dispatchThreadgroupsWithIndirectBuffer:groups
                             indirectBufferOffset:offset
                            threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
}

// Clears the numbers of threadgroups of the first launch if `missing` is not zero.
void encode_gate(Soft& soft, id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> missing,
                 id<MTLBuffer> passed, id<MTLBuffer> groups) {
  const uint32_t values[] = {0, 0, 1};
  [encoder setComputePipelineState:soft.pipeline(@"gate")];
  [encoder setBuffer:missing offset:0 atIndex:0];
  [encoder setBuffer:passed offset:0 atIndex:1];
  [encoder setBuffer:groups offset:0 atIndex:2];
  for (NSUInteger i = 0; i < 3; ++i) [encoder setBytes:&values[i] length:sizeof(uint32_t) atIndex:3 + i];
  [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
}

id<MTLBuffer> three(Soft& soft, uint32_t x, uint32_t y = 1, uint32_t z = 1) {
  id<MTLBuffer> groups = soft.buffer(3);
  words(groups)[0] = x;
  words(groups)[1] = y;
  words(groups)[2] = z;
  return groups;
}

}  // namespace

NATIVE_TEST(soft_indirect_dispatch) {
  keeps([](Soft& soft) {  // the number of threadgroups is the one at the time of the dispatch
    id<MTLBuffer> a = soft.buffer(10, 3), y = soft.buffer(10), z = soft.buffer(10), groups = soft.buffer(8);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_indirect(soft, encoder, a, y, groups, 0);
    encode_indirect(soft, encoder, a, z, groups, 20);
    [encoder endEncoding];
    for (int i = 0; i < 3; ++i) words(groups)[5 + i] = 1;
    soft.finish(commands);
    CHECK_EQ(floats(y)[9], 0.0f);
    CHECK_EQ(floats(z)[9], 6.0f);
    CHECK_EQ(soft_metal::counters().dispatches, 1u);
    CHECK_EQ(soft_metal::counters().empty_dispatches, 1u);
  });
}

NATIVE_TEST(soft_indirect_dispatch_after_its_writer) {
  for (const bool together : {false, true})
    for (const uint32_t missing : {0, 2})
      keeps([&](Soft& soft) {
        id<MTLBuffer> a = soft.buffer(10, 3), y = soft.buffer(10), groups = three(soft, 1);
        id<MTLBuffer> count = soft.buffer(1);
        words(count)[0] = missing;
        id<MTLCommandBuffer> commands = soft.commands();
        id<MTLComputeCommandEncoder> encoder =
            [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        encode_gate(soft, encoder, count, soft.buffer(1), groups);
        if (together) {
          [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        } else {
          [encoder endEncoding];
          encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
        }
        encode_indirect(soft, encoder, a, y, groups);
        [encoder endEncoding];
        soft.finish(commands);
        CHECK_EQ(floats(y)[9], missing ? 0.0f : 6.0f);
        CHECK_EQ(soft_metal::counters().needless_barriers, 0u);
      });
  breaks(Rule::missing_barrier, [](Soft& soft) {
    id<MTLBuffer> groups = three(soft, 1);
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder =
        [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    encode_gate(soft, encoder, soft.buffer(1), soft.buffer(1), groups);
    encode_indirect(soft, encoder, soft.buffer(10), soft.buffer(10), groups);
    [encoder endEncoding];
    CHECK(soft.failure(commands).find("gate writes groups and add reads its number of threadgroups") !=
          std::string::npos);
  });
}

NATIVE_TEST(soft_indirect_offset) {
  for (const NSUInteger offset : {NSUInteger(2), NSUInteger(4), NSUInteger(12), ~NSUInteger(3)})
    breaks(Rule::offset, [&](Soft& soft) {
      id<MTLCommandBuffer> commands = soft.commands();
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      encode_indirect(soft, encoder, soft.buffer(10), soft.buffer(10), three(soft, 1), offset);
      [encoder endEncoding];
      soft.failure(commands);
    });
  breaks(Rule::offset, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_indirect(soft, encoder, soft.buffer(10), soft.buffer(10), nil);
    [encoder endEncoding];
    soft.failure(commands);
  });
}

NATIVE_TEST(soft_indirect_threadgroup_size) {
  breaks(Rule::threadgroup_size, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_indirect(soft, encoder, soft.buffer(10), soft.buffer(10), three(soft, 1u << 31));
    [encoder endEncoding];
    soft.failure(commands);
  });
}

NATIVE_TEST(soft_indirect_pipeline_missing) {
  breaks(Rule::pipeline_missing, [](Soft& soft) {
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder dispatchThreadgroupsWithIndirectBuffer:three(soft, 1)
                               indirectBufferOffset:0
                              threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    [encoder endEncoding];
    soft.failure(commands);
  });
}

NATIVE_TEST(soft_round_trips) {
  keeps([](Soft& soft) {
    id<MTLCommandBuffer> first = soft.commands(), second = soft.commands();
    [first commit];
    [second commit];
    [first waitUntilCompleted];  // the second one is behind it
    CHECK_EQ(soft_metal::counters().round_trips, 0u);
    [second waitUntilCompleted];
    [second waitUntilCompleted];
    CHECK_EQ(soft_metal::counters().round_trips, 1u);
    soft.finish(soft.commands());
    CHECK_EQ(soft_metal::counters().round_trips, 2u);
  });
}
