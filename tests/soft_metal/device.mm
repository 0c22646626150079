#include <errno.h>
#include <objc/runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "msl_source.h"
#include "null.h"
#include "objects.h"
#include "pipeline.h"
#include "residency.h"

using soft_metal::Fault;
using soft_metal::Memory;
using soft_metal::Rule;

namespace {

constexpr char kMetallibLine[] = "soft metallib 1";
constexpr NSUInteger kSampleBufferLimit = 32768;  // bytes, of Apple's GPUs
constexpr int kSampleBuffers = 32;                // at a time, of Apple's GPUs

std::string text_or(const std::string& text, const char* otherwise) {
  return text.empty() ? otherwise : text;
}

// Whether every page of the range belongs to some mapping of this process.
bool mapped(void* pointer, uint64_t length) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(pointer) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(pointer) + length + page - 1) / page * page;
  std::vector<unsigned char> resident((end - begin) / page);
  return mincore(reinterpret_cast<void*>(begin), end - begin, resident.data()) == 0 || errno != ENOMEM;
}

std::map<std::string, std::string> macros_of(MTLCompileOptions* options) {
  const SoftPool pool;
  std::map<std::string, std::string> macros;
  NSEnumerator* names = [options.preprocessorMacros keyEnumerator];
  while (NSString* name = [names nextObject])
    macros[soft_text(name)] = soft_text([[options.preprocessorMacros objectForKey:name] description]);
  return macros;
}

}  // namespace

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  return soft_metal::options().present ? [[SoftDevice alloc] init] : nil;
}

NSArray* MTLCopyAllDevices(void) {
  NSMutableArray* devices = [[NSMutableArray alloc] init];
  if (id<MTLDevice> device = MTLCreateSystemDefaultDevice()) {
    [devices addObject:device];
    [device release];
  }
  return devices;
}

@implementation SoftDevice

@synthesize shouldMaximizeConcurrentCompilation = shouldMaximizeConcurrentCompilation_;

- (id)init {
  if ((self = [super init])) name_ = soft_new_string(soft_metal::options().name);
  return self;
}

- (void)dealloc {
  [name_ release];
  [super dealloc];
}

- (BOOL)respondsToSelector:(SEL)selector {
  const bool residency = sel_isEqual(selector, @selector(newResidencySetWithDescriptor:error:));
  return residency && !soft_metal::options().residency_sets ? NO : [super respondsToSelector:selector];
}

// What it is

- (NSString*)name {
  return name_;
}

- (uint64_t)registryID {
  return soft_metal::kRegistryID;
}

- (MTLSize)maxThreadsPerThreadgroup {
  const NSUInteger threads = soft_metal::options().max_threads;
  return MTLSizeMake(threads, threads, threads);
}

- (BOOL)hasUnifiedMemory {
  return YES;
}

- (uint64_t)recommendedMaxWorkingSetSize {
  return soft_metal::options().recommended_working_set;
}

- (NSUInteger)currentAllocatedSize {
  return Memory::allocated();
}

- (NSUInteger)maxThreadgroupMemoryLength {
  return soft_metal::options().max_threadgroup_bytes;
}

- (NSUInteger)maxBufferLength {
  return soft_metal::options().max_buffer_length;
}

- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily {
  const auto families = soft_metal::options().families;
  return std::find(families.begin(), families.end(), int64_t(gpuFamily)) != families.end() ? YES : NO;
}

// Buffers

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  const uint64_t limit = soft_metal::options().max_buffer_length;
  if (length == 0 || length > limit) {
    soft_metal::violate(Rule::buffer_length, "newBufferWithLength",
                        "expected 1 to " + std::to_string(limit) + " bytes, got " + std::to_string(length));
    return nil;
  }
  if (soft_metal::take_fault(Fault::allocation)) return nil;
  auto memory = Memory::allocate(length);
  return memory ? [[SoftBuffer alloc] initWithMemory:std::move(memory) device:self options:options] : nil;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(id)deallocator {
  const char* call = "newBufferWithBytesNoCopy";
  const uint64_t limit = soft_metal::options().max_buffer_length;
  const uint64_t past = reinterpret_cast<uintptr_t>(pointer) % soft_metal::kPage;
  if (length == 0 || length > limit) {
    soft_metal::violate(Rule::buffer_length, call,
                        "expected 1 to " + std::to_string(limit) + " bytes, got " + std::to_string(length));
  } else if (!pointer || past || length % soft_metal::kPage) {
    soft_metal::violate(Rule::no_copy_alignment, call,
                        "expected pointer and length in pages of 16384 bytes, got an address " +
                            std::to_string(past) + " bytes past one and " + std::to_string(length) +
                            " bytes");
  } else if (!mapped(pointer, length)) {
    soft_metal::violate(
        Rule::no_copy_alignment, call,
        "expected mapped memory, got " + std::to_string(length) + " bytes that are not all mapped");
  } else if ((options & MTLResourceStorageModeMask) == MTLResourceStorageModePrivate || deallocator) {
    soft_metal::violate(Rule::buffer_options, call,
                        "expected shared storage and no deallocator, got other options");
  } else if (!soft_metal::take_fault(Fault::allocation)) {
    return [[SoftBuffer alloc] initWithMemory:Memory::wrap(pointer, length) device:self options:options];
  }
  return nil;
}

// Libraries and pipelines

- (id<MTLLibrary>)newLibraryWithURL:(NSURL*)url error:(NSError**)error {
  const std::string path = soft_path(url);
  if (const auto fault = soft_metal::take_fault(Fault::library)) {
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal, text_or(fault->text, "Internal error"));
    return nil;
  }
  std::ifstream file(path);
  std::string line;
  if (!file) {
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorFileNotFound, "library not found: " + path);
    return nil;
  }
  if (!std::getline(file, line) || line != kMetallibLine) {
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorUnsupported, "Invalid library file: " + path);
    return nil;
  }
  std::vector<std::string> names;
  while (std::getline(file, line)) names.push_back(line);
  return [[SoftLibrary alloc] initWithFunctionNames:names];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  if (const auto fault = soft_metal::take_fault(Fault::library)) {
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
               text_or(fault->text, "Compilation failed"));
    return nil;
  }
  const soft_metal::SourceResult result = soft_metal::read_source(soft_text(source), macros_of(options));
  if (!result.error.empty()) {
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, result.error);
    return nil;
  }
  soft_metal::count([](soft_metal::Counters& counters) { ++counters.libraries_from_source; });
  return [[SoftLibrary alloc] initWithFunctionNames:result.kernels];
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                             error:(NSError**)error {
  MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
  descriptor.computeFunction = computeFunction;
  id<MTLComputePipelineState> state = [self newComputePipelineStateWithDescriptor:descriptor
                                                                          options:MTLPipelineOptionNone
                                                                       reflection:nullptr
                                                                            error:error];
  [descriptor release];
  return state;
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLAutoreleasedComputePipelineReflection*)reflection
                                    error:(NSError**)error {
  if (const auto fault = soft_metal::take_fault(Fault::slow_pipeline))
    std::this_thread::sleep_for(std::chrono::milliseconds(fault->milliseconds));
  SoftFunction* function = (SoftFunction*)descriptor.computeFunction;
  std::string wrong = "computeFunction must not be nil";
  std::shared_ptr<soft_metal::Pipeline> pipeline;
  if (const auto fault = soft_metal::take_fault(Fault::pipeline))
    wrong = text_or(fault->text, "Compiler encountered an internal error");
  else if (function)
    pipeline = soft_compile(function, wrong);
  bool archived = false;
  for (NSUInteger i = 0; pipeline && i < [descriptor.binaryArchives count]; ++i)
    archived |= bool([[descriptor.binaryArchives objectAtIndex:i] contains:[function key]]);
  if (pipeline && !archived && (options & MTLPipelineOptionFailOnBinaryArchiveMiss)) {
    pipeline = nullptr;
    wrong = [function key] + ": not found in the binary archives";
  }
  if (!pipeline) {
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, wrong);
    return nil;
  }
  soft_metal::count([&](soft_metal::Counters& counters) {
    ++(archived ? counters.pipelines_from_archive : counters.pipelines_compiled);
  });
  if (const NSUInteger most = descriptor.maxTotalThreadsPerThreadgroup)
    pipeline->max_threads = uint32_t(std::min<NSUInteger>(pipeline->max_threads, most));
  pipeline->multiple_of_simd_width = descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth;
  return [[SoftComputePipelineState alloc] initWithPipeline:std::move(pipeline) label:descriptor.label];
}

- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                 error:(NSError**)error {
  return [[SoftBinaryArchive alloc] initWithURL:descriptor.url error:error];
}

// Queues, events, counters, residency

- (id<MTLCommandQueue>)newCommandQueue {
  if (soft_metal::options().does_nothing) return [[SoftNullQueue alloc] init];
  return [[SoftCommandQueue alloc] initWithDevice:self];
}

- (id<MTLSharedEvent>)newSharedEvent {
  return [[SoftSharedEvent alloc] init];
}

- (NSArray*)counterSets {
  if (!soft_metal::options().counter_sampling) return nil;
  SoftCounterSet* set = [[SoftCounterSet alloc] init];
  NSArray* sets = [[NSArray alloc] initWithObjects:set, nil];
  [set release];
  return [sets autorelease];
}

- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)samplingPoint {
  return soft_metal::options().counter_sampling && samplingPoint == MTLCounterSamplingPointAtStageBoundary
             ? YES
             : NO;
}

- (id<MTLCounterSampleBuffer>)newCounterSampleBufferWithDescriptor:
                                  (MTLCounterSampleBufferDescriptor*)descriptor
                                                             error:(NSError**)error {
  const NSUInteger length = descriptor.sampleCount * sizeof(MTLCounterResultTimestamp);
  if (!soft_metal::options().counter_sampling || !descriptor.counterSet) {
    soft_error(error, MTLCounterErrorDomain, MTLCounterSampleBufferErrorInvalid,
               "expected a counter set of this device");
    return nil;
  }
  if (length == 0 || length > kSampleBufferLimit) {
    soft_error(error, MTLCounterErrorDomain, MTLCounterSampleBufferErrorOutOfMemory,
               "Invalid sample buffer length: " + std::to_string(length) + " B. Expected range: 8 -> " +
                   std::to_string(kSampleBufferLimit));
    return nil;
  }
  if (soft_metal::live_objects()["MTLCounterSampleBuffer"] >= kSampleBuffers) {
    soft_error(error, MTLCounterErrorDomain, MTLCounterSampleBufferErrorOutOfMemory,
               "Cannot allocate sample buffer");
    return nil;
  }
  return [[SoftCounterSampleBuffer alloc] initWithCount:descriptor.sampleCount label:descriptor.label];
}

- (void)sampleTimestamps:(MTLTimestamp*)cpuTimestamp gpuTimestamp:(MTLTimestamp*)gpuTimestamp {
  *cpuTimestamp = soft_metal::now();
  *gpuTimestamp = soft_metal::gpu_ticks();
}

- (id)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor error:(NSError**)error {
  SoftResidencySet* set = [[SoftResidencySet alloc] init];
  set.label = descriptor.label;
  return set;
}

@end
