#include <fstream>

#include "objects.h"
#include "pipeline.h"

NSErrorDomain const MTLBinaryArchiveDomain = @"MTLBinaryArchiveDomain";

namespace {

constexpr char kFirstLine[] = "soft binary archive 1";
constexpr char kLastLine[] = "end";

// False unless the file is whole.
bool read_archive(const std::string& path, std::set<std::string>& keys) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != kFirstLine) return false;
  while (std::getline(file, line)) {
    if (line == kLastLine) return true;
    keys.insert(line);
  }
  return false;
}

}  // namespace

@implementation MTLBinaryArchiveDescriptor

@synthesize url = url_;

- (void)dealloc {
  [url_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLBinaryArchiveDescriptor* copy = [[[self class] allocWithZone:zone] init];
  copy.url = url_;
  return copy;
}

@end

@implementation SoftBinaryArchive

- (id)initWithURL:(NSURL*)url error:(NSError**)error {
  if (!(self = [super init])) return nil;
  keys_ = new std::set<std::string>;
  if (!url || read_archive(soft_path(url), *keys_)) return self;
  soft_error(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorInvalidFile,
             "Invalid binary archive file " + soft_path(url));
  [self release];
  return nil;
}

- (void)dealloc {
  delete keys_;
  [super dealloc];
}

- (BOOL)contains:(const std::string&)key {
  return keys_->count(key) ? YES : NO;
}

- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError**)error {
  SoftFunction* function = (SoftFunction*)descriptor.computeFunction;
  std::string wrong = "expected a computeFunction, got nil";
  if (function && soft_compile(function, wrong)) {
    keys_->insert([function key]);
    return YES;
  }
  soft_error(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorCompilationFailure, wrong);
  return NO;
}

- (BOOL)serializeToURL:(NSURL*)url error:(NSError**)error {
  std::ofstream file(soft_path(url));
  file << kFirstLine << "\n";
  for (const std::string& key : *keys_) file << key << "\n";
  file << kLastLine << "\n";
  file.close();
  if (file) return YES;
  soft_error(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorInternalError,
             "Cannot write " + soft_path(url));
  return NO;
}

@end
