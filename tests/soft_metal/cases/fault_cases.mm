// Faults on request, and what comes only with macOS 15.
#include "soft_case.h"

// As code for macOS 14 headers declares them.
@interface MTLResidencySetDescriptor : NSObject <NSCopying>
@property(copy, nonatomic) NSString* label;
@end
@protocol SoftCaseResidency
- (id)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor error:(NSError**)error;
- (void)addAllocation:(id)allocation;
- (void)removeAllocation:(id)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
- (void)addResidencySet:(id)residencySet;
- (void)removeResidencySet:(id)residencySet;
@end

using soft_metal::Fault;

NATIVE_TEST(soft_allocation_fault) {
  keeps([](Soft& soft) {
    soft_metal::inject({.fault = Fault::allocation, .after = 1, .times = 2});
    CHECK(soft.buffer(1) != nil);
    CHECK([soft.device() newBufferWithLength:4 options:MTLResourceStorageModeShared] == nil);
    CHECK([soft.device() newBufferWithLength:4 options:MTLResourceStorageModeShared] == nil);
    CHECK(soft.buffer(1) != nil);
  });
}

NATIVE_TEST(soft_library_and_pipeline_faults) {
  keeps([](Soft& soft) {
    NSError* error = nil;
    soft_metal::inject({.fault = Fault::library, .text = "no library"});
    CHECK([soft.device() newLibraryWithSource:@"" options:nil error:&error] == nil);
    CHECK([[error localizedDescription] isEqualToString:@"no library"]);
    soft_metal::inject({.fault = Fault::pipeline});
    id<MTLFunction> function = soft.own([soft.library() newFunctionWithName:@"add"]);
    CHECK([soft.device() newComputePipelineStateWithFunction:function error:&error] == nil);
    CHECK([[error localizedDescription] hasPrefix:@"Compiler encountered"]);
    CHECK(soft.pipeline(@"add") != nil);
  });
}

NATIVE_TEST(soft_command_buffer_fault) {
  keeps([](Soft& soft) {
    soft_metal::inject({.fault = Fault::command_buffer, .after = 1, .text = "Caused GPU Hang Error"});
    id<MTLBuffer> a = soft.buffer(4, 1), y = soft.buffer(4);
    soft.finish(soft.commands());
    id<MTLCommandBuffer> commands = soft.commands();
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode_add(soft, encoder, a, a, y, 4);
    [encoder endEncoding];
    CHECK_EQ(soft.failure(commands), "Caused GPU Hang Error");
    CHECK([commands.error.domain isEqualToString:MTLCommandBufferErrorDomain]);
    CHECK_EQ(floats(y)[0], 0.0f);
    soft.finish(soft.commands());
  });
}

NATIVE_TEST(soft_slow_completion) {
  keeps([](Soft& soft) {
    soft_metal::inject({.fault = Fault::slow, .milliseconds = 100});
    id<MTLCommandBuffer> commands = soft.commands();
    [commands commit];
    CHECK(commands.status < MTLCommandBufferStatusCompleted);
    CHECK(commands.error == nil);
    [commands waitUntilCompleted];
    CHECK_EQ(commands.status, MTLCommandBufferStatusCompleted);
    CHECK(commands.GPUEndTime - commands.GPUStartTime >= 0.1);
  });
}

NATIVE_TEST(soft_device_lost) {
  keeps([](Soft& soft) {
    soft_metal::inject({.fault = Fault::device_lost, .after = 1});
    soft.finish(soft.commands());
    for (int i = 0; i < 3; ++i) {
      id<MTLCommandBuffer> commands = soft.commands();
      CHECK_EQ(soft.failure(commands), "The device was removed");
      CHECK_EQ(commands.error.code, NSInteger(MTLCommandBufferErrorDeviceRemoved));
    }
  });
}

NATIVE_TEST(soft_residency_sets) {
  keeps([](Soft& soft) {
    id device = soft.device();
    id queue = soft.queue();
    CHECK([device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]);
    CHECK([queue respondsToSelector:@selector(addResidencySet:)]);
    MTLResidencySetDescriptor* descriptor =
        soft.own([[NSClassFromString(@"MTLResidencySetDescriptor") alloc] init]);
    descriptor.label = @"weights";
    id set = soft.own([device newResidencySetWithDescriptor:descriptor error:nullptr]);
    id<MTLBuffer> buffer = [device newBufferWithLength:4 options:MTLResourceStorageModeShared];
    [set addAllocation:buffer];
    [set commit];
    [set requestResidency];
    [queue addResidencySet:set];
    [buffer release];
    CHECK_EQ(soft_metal::live_objects()["MTLBuffer"], 1);  // the set's
    [queue removeResidencySet:set];
    [set removeAllocation:buffer];
    [set commit];
    [set endResidency];
    CHECK_EQ(soft_metal::live_objects()["MTLBuffer"], 0);

    auto options = soft_metal::options();
    options.residency_sets = false;
    soft_metal::set_options(options);
    CHECK(![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]);
    CHECK(![queue respondsToSelector:@selector(addResidencySet:)]);
  });
}
