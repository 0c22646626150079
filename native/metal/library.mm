#include "metal/library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/kernels.h"
#include "pyturbo/error.h"

namespace pyturbo::metal {
namespace {

namespace fs = std::filesystem;

// The function constant with which products of many tokens round their operands (shaders/common/tile.h).
constexpr std::string_view kRoundingConstant = "bf16_operands";
constexpr bool kRounds = true;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// FNV-1a. It distinguishes versions and gives no protection against attacks.
uint64_t fnv(const std::string& bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

MTLDataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MTLDataTypeFloat;
    case DType::f16:
      return MTLDataTypeHalf;
    case DType::i8:
      return MTLDataTypeChar;
    case DType::u8:
      return MTLDataTypeUChar;
    case DType::i16:
      return MTLDataTypeShort;
    case DType::u16:
      return MTLDataTypeUShort;
    case DType::i32:
      return MTLDataTypeInt;
    case DType::u32:
      return MTLDataTypeUInt;
    case DType::boolean:
      return MTLDataTypeBool;
    default:
      return MTLDataTypeNone;
  }
}

}  // namespace

Library::Library(id<MTLDevice> device, Precision precision)
    : device_(Ref<DeviceObject>::retain(device)), precision_(precision) {
  const char* named = std::getenv("PYTURBO_METALLIB");
  const fs::path metallib = named ? fs::path(named) : fs::path(kernels_folder()) / "pyturbo.metallib";
  const fs::path sources = fs::path(kernels_folder()) / "shaders";
  std::error_code ignored;
  if (named && !fs::is_regular_file(metallib, ignored))
    throw Error(ErrorKind::device, "PYTURBO_METALLIB: expected a file, found none at " + metallib.string());
  if (fs::is_regular_file(metallib, ignored)) {
    NSError* error = nil;
    NSURL* url = [NSURL fileURLWithPath:string(metallib.string(), "path of the kernels")];
    metallib_ = Ref<LibraryObject>::adopt([device newLibraryWithURL:url error:&error]);
    if (!metallib_) throw Error(ErrorKind::device, metallib.string() + ": cannot be loaded: " + text(error));
    path_ = metallib.string();
    hash_ = std::to_string(fnv(read(metallib)));
    return;
  }
  if (!fs::is_directory(sources, ignored))
    throw Error(ErrorKind::device, "expected the kernels in " + metallib.string() + " or their sources in " +
                                       sources.string() + ", found neither");
  path_ = sources.string();
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(sources)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  uint64_t hash = fnv("");
  for (const fs::path& file : files) hash = fnv(read(file), fnv(file.filename().string(), hash));
  hash_ = std::to_string(hash);
}

Ref<LibraryObject> Library::compile(const std::string& path) {
  const std::string source = read(path);
  if (source.empty()) throw Error(ErrorKind::device, path + ": expected the source of a shader, found none");
  const auto options = Ref<MTLCompileOptions*>::adopt([[MTLCompileOptions alloc] init]);
  [options.get() setFastMathEnabled:NO];
  [options.get() setLanguageVersion:MTLLanguageVersion3_1];
  NSError* error = nil;
  auto library = Ref<LibraryObject>::adopt([device_.get() newLibraryWithSource:string(source)
                                                                       options:options.get()
                                                                         error:&error]);
  if (!library) throw Error(ErrorKind::device, path + ": cannot be compiled: " + text(error));
  return library;
}

id<MTLLibrary> Library::library_of(const KernelInfo& kernel) {
  if (metallib_) return metallib_.get();
  std::string file = kernel.file;  // "norm/rms_norm.metal"
  std::replace(file.begin(), file.end(), '/', '_');
  Source& source = [&]() -> Source& {
    const std::lock_guard lock(mutex_);
    return sources_[file];
  }();
  const std::lock_guard lock(source.mutex);
  if (!source.library) source.library = compile(path_ + "/" + file);
  return source.library.get();
}

Ref<FunctionObject> Library::function(const KernelInfo& kernel, const void* const* constants) {
  const auto values = Ref<MTLFunctionConstantValues*>::adopt([[MTLFunctionConstantValues alloc] init]);
  for (uint32_t i = 0; i < kernel.constant_count; ++i) {
    const ConstantInfo& info = kernel.constants[i];
    const void* value = constants[info.slot];
    if (!value && precision_ == Precision::fast && info.name == kRoundingConstant) value = &kRounds;
    if (value) [values.get() setConstantValue:value type:data_type(info.dtype) atIndex:info.index];
  }
  NSError* error = nil;
  auto function = Ref<FunctionObject>::adopt([library_of(kernel) newFunctionWithName:string(kernel.name)
                                                                      constantValues:values.get()
                                                                               error:&error]);
  if (!function)
    throw Error(ErrorKind::device, std::string(kernel.name) + ": not in " + path_ + ": " + text(error));
  return function;
}

}  // namespace pyturbo::metal
