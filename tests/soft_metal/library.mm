#include <cstring>

#include "core/kernels.h"
#include "objects.h"

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

namespace {

using pyturbo::DType;
using soft_metal::Rule;

struct ScalarType {
  MTLDataType type;
  DType dtype;
  size_t size;
};

constexpr ScalarType kScalarTypes[] = {
    {MTLDataTypeFloat, DType::f32, 4},   {MTLDataTypeHalf, DType::f16, 2},
    {MTLDataTypeBFloat, DType::bf16, 2}, {MTLDataTypeChar, DType::i8, 1},
    {MTLDataTypeUChar, DType::u8, 1},    {MTLDataTypeShort, DType::i16, 2},
    {MTLDataTypeUShort, DType::u16, 2},  {MTLDataTypeInt, DType::i32, 4},
    {MTLDataTypeUInt, DType::u32, 4},    {MTLDataTypeLong, DType::i64, 8},
    {MTLDataTypeULong, DType::u64, 8},   {MTLDataTypeBool, DType::boolean, 1},
};

// What is wrong with these values for the kernel; empty when nothing is.
std::string constants_error(const pyturbo::KernelInfo& kernel, const soft_metal::ConstantValues& values) {
  for (uint32_t i = 0; i < kernel.constant_count; ++i) {
    const pyturbo::ConstantInfo& constant = kernel.constants[i];
    const auto found = values.find(constant.index);
    const std::string which =
        std::string("function constant ") + constant.name + " at index " + std::to_string(constant.index);
    if (found == values.end() && constant.required) return "expected a value for " + which + ", got none";
    if (found != values.end() && found->second.dtype != constant.dtype)
      return "expected " + which + " in the shader's type, got another";
  }
  return "";
}

}  // namespace

@implementation MTLFunctionConstantValues

- (id)init {
  if ((self = [super init])) values_ = new SoftConstantValues;
  return self;
}

- (void)dealloc {
  delete values_;
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLFunctionConstantValues* copy = [[[self class] allocWithZone:zone] init];
  *copy->values_ = *values_;
  return copy;
}

- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  for (const ScalarType& known : kScalarTypes) {
    if (known.type != type) continue;
    const auto* bytes = static_cast<const uint8_t*>(value);
    values_->values[index] = {known.dtype, {bytes, bytes + known.size}};
    return;
  }
  soft_metal::violate(Rule::function_constant, "MTLFunctionConstantValues",
                      "expected a scalar type, got MTLDataType " + std::to_string(type));
}

@end

@implementation MTLCompileOptions

@synthesize preprocessorMacros = preprocessorMacros_, fastMathEnabled = fastMathEnabled_,
            languageVersion = languageVersion_;

- (id)init {
  if (!(self = [super init])) return nil;
  fastMathEnabled_ = YES;
  languageVersion_ = MTLLanguageVersion3_1;
  return self;
}

- (void)dealloc {
  [preprocessorMacros_ release];
  [super dealloc];
}

- (id)copyWithZone:(NSZone*)zone {
  MTLCompileOptions* copy = [[[self class] allocWithZone:zone] init];
  copy.preprocessorMacros = preprocessorMacros_;
  copy.fastMathEnabled = fastMathEnabled_;
  copy.languageVersion = languageVersion_;
  return copy;
}

@end

@implementation SoftLibrary

- (id)initWithFunctionNames:(const std::vector<std::string>&)names {
  if (!(self = [super init])) return nil;
  NSMutableArray* array = [[NSMutableArray alloc] init];
  for (const std::string& name : names) {
    NSString* string = soft_new_string(name);
    [array addObject:string];
    [string release];
  }
  functionNames_ = array;
  return self;
}

- (void)dealloc {
  [functionNames_ release];
  [super dealloc];
}

- (NSArray*)functionNames {
  return functionNames_;
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)functionName {
  if ([functionNames_ containsObject:functionName])
    return [[SoftFunction alloc] initWithName:functionName values:SoftConstantValues()];
  soft_metal::violate(Rule::unknown_function, [self quoted],
                      "expected one of its functions, got " + soft_text(functionName));
  return nil;
}

- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)constantValues
                                 error:(NSError**)error {
  const std::string text = soft_text(name);
  if (![functionNames_ containsObject:name]) {
    soft_metal::violate(Rule::unknown_function, [self quoted], "expected one of its functions, got " + text);
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound,
               "Function " + text + " was not found in the library");
    return nil;
  }
  const pyturbo::KernelInfo* kernel = pyturbo::kernel_registry().find(text, pyturbo::Variant::reference);
  const std::string wrong = kernel ? constants_error(*kernel, constantValues->values_->values) : "";
  if (!wrong.empty()) {
    soft_metal::violate(Rule::function_constant, text, wrong);
    soft_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, text + ": " + wrong);
    return nil;
  }
  return [[SoftFunction alloc] initWithName:name values:*constantValues->values_];
}

@end

@implementation SoftFunction

- (id)initWithName:(NSString*)name values:(const SoftConstantValues&)values {
  if (!(self = [super init])) return nil;
  name_ = [name copy];
  values_ = new SoftConstantValues(values);
  return self;
}

- (void)dealloc {
  [name_ release];
  delete values_;
  [super dealloc];
}

- (NSString*)name {
  return name_;
}

- (std::string)key {
  std::string key = soft_text(name_);
  for (const auto& [index, value] : values_->values) {
    key += " " + std::to_string(index) + "=" + std::to_string(int(value.dtype));
    for (const uint8_t byte : value.bytes) key += ":" + std::to_string(byte);
  }
  return key;
}

@end
