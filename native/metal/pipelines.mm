#include "metal/pipelines.h"

#include <cstdlib>
#include <filesystem>

#include "core/cache_folder.h"
#include "pyturbo/error.h"

namespace pyturbo::metal {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".metalarchive";

std::string archive_path(id<MTLDevice> device, const std::string& library_hash) {
  const char* validation = std::getenv("MTL_SHADER_VALIDATION");  // it does not work with archives
  const fs::path folder = cache_folder();
  if (const char* named = std::getenv("PYTURBO_CACHE")) string(named, "PYTURBO_CACHE");  // refuses other text
  if (folder.empty() || !is_utf8(folder.string()) || (validation && *validation && *validation != '0'))
    return {};
  std::string name =
      text([device name]) + " " + text([[NSProcessInfo processInfo] operatingSystemVersionString]);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  return folder / (library_hash + "-" + name + kSuffix);
}

}  // namespace

Pipelines::Pipelines(id<MTLDevice> device, Precision precision)
    : device_(Ref<DeviceObject>::retain(device)),
      library_(device, precision),
      archive_path_(archive_path(device, library_.hash())) {
  if (!archive_path_.empty()) archive_ = open_archive(archive_path_);
}

// Opens the archive on disk, or creates one; returns none if Metal refuses.
Ref<ArchiveObject> Pipelines::open_archive(const std::string& path) {
  const auto descriptor = Ref<MTLBinaryArchiveDescriptor*>::adopt([[MTLBinaryArchiveDescriptor alloc] init]);
  std::error_code ignored;
  NSError* error = nil;
  if (fs::is_regular_file(path, ignored)) {
    [descriptor.get() setUrl:[NSURL fileURLWithPath:string(path)]];
    auto stored = Ref<ArchiveObject>::adopt([device_.get() newBinaryArchiveWithDescriptor:descriptor.get()
                                                                                    error:&error]);
    if (stored) return stored;
    [descriptor.get() setUrl:nil];
  }
  return Ref<ArchiveObject>::adopt([device_.get() newBinaryArchiveWithDescriptor:descriptor.get()
                                                                           error:&error]);
}

void Pipelines::prepare(std::span<const ReadyLaunch> launches,
                        const std::function<void(uint64_t done, uint64_t total)>& progress) {
  const auto known = [&](const InstanceKey& key) { return find(key) != nil; };
  make_instances(unknown_instances(launches, known), progress, [&](size_t, const Instance& instance) {
    const Pool pool;
    add(instance.key, instance.constants);
  });
  save();
}

id<MTLComputePipelineState> Pipelines::get(const KernelInfo& kernel, const void* const* constants) {
  const InstanceKey key = instance_key(kernel, constants);
  id<MTLComputePipelineState> known = find(key);
  return known ? known : add(key, constants);
}

id<MTLComputePipelineState> Pipelines::find(const InstanceKey& key) {
  const std::lock_guard lock(mutex_);
  const auto known = pipelines_.find(key);
  return known == pipelines_.end() ? nil : known->second.get();
}

// Of a pipeline that two threads make at the same time, the first one stays.
id<MTLComputePipelineState> Pipelines::add(const InstanceKey& key, const void* const* constants) {
  Ref<PipelineObject> made = make(*key.first, constants);
  const std::lock_guard lock(mutex_);
  return pipelines_.emplace(key, std::move(made)).first->second.get();
}

Ref<PipelineObject> Pipelines::make(const KernelInfo& kernel, const void* const* constants) {
  const auto function = library_.function(kernel, constants);
  const auto descriptor =
      Ref<MTLComputePipelineDescriptor*>::adopt([[MTLComputePipelineDescriptor alloc] init]);
  [descriptor.get() setComputeFunction:function.get()];
  [descriptor.get() setLabel:string(kernel.name)];

  NSError* error = nil;
  if (archive_) {
    const std::shared_lock lock(archiving_);
    [descriptor.get() setBinaryArchives:[NSArray arrayWithObject:archive_.get()]];
    auto stored = Ref<PipelineObject>::adopt([device_.get()
        newComputePipelineStateWithDescriptor:descriptor.get()
                                      options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                   reflection:nullptr
                                        error:&error]);
    if (stored) return stored;
    [descriptor.get() setBinaryArchives:nil];
    error = nil;
  }
  auto pipeline =
      Ref<PipelineObject>::adopt([device_.get() newComputePipelineStateWithDescriptor:descriptor.get()
                                                                              options:MTLPipelineOptionNone
                                                                           reflection:nullptr
                                                                                error:&error]);
  if (!pipeline)
    throw Error(ErrorKind::device,
                std::string(kernel.name) + ": Metal cannot make a pipeline: " + text(error));
  if (archive_) {
    const std::lock_guard lock(archiving_);
    made_.push_back(descriptor);
  }
  return pipeline;
}

void Pipelines::save() {
  const std::lock_guard lock(archiving_);
  bool changed = false;
  NSError* error = nil;
  for (const auto& descriptor : made_)
    changed |= bool([archive_.get() addComputePipelineFunctionsWithDescriptor:descriptor.get() error:&error]);
  made_.clear();
  if (!changed) return;
  std::error_code failed;
  const fs::path folder = fs::path(archive_path_).parent_path();
  fs::create_directories(folder, failed);
  remove_leftovers(folder, kSuffix);
  const std::string temporary = temporary_path(archive_path_);
  if ([archive_.get() serializeToURL:[NSURL fileURLWithPath:string(temporary)] error:&error])
    fs::rename(temporary, archive_path_, failed);
  fs::remove(temporary, failed);
}

}  // namespace pyturbo::metal
