// A tiny harness for C++ tests: cases register themselves, checks throw.
#pragma once

#include <cstring>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct NativeCase {
  const char* name;
  void (*run)();
};

// In order of registration; one list for the whole program.
inline std::vector<NativeCase>& native_cases() {
  static std::vector<NativeCase> cases;
  return cases;
}

// For pytest (_native_tests.pyx): one case by name, and the kernels of tests/shaders for every device.
void run_native_case(const std::string& name);
void register_test_kernels();

// From now on a process that aborts writes the native stack of its thread to stderr first.
void show_stack_on_abort();

namespace native_test {

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

// Text of a value for a failure message; types that cannot be printed have none.
template <typename T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream& out) { out << +value; }) {
    std::ostringstream out;
    out.precision(17);
    out << +value;
    return out.str();
  } else if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "(value)";
  }
}

template <typename A, typename B>
void check_equal(const char* file, int line, const char* text, const A& a, const B& b) {
  if (!(a == b)) fail(file, line, std::string(text) + ": got " + show(a) + ", expected " + show(b));
}

template <typename Run>
void check_throws(const char* file, int line, const char* text, const char* message, Run run) {
  try {
    run();
  } catch (const std::exception& error) {
    if (std::strstr(error.what(), message)) return;
    fail(file, line, std::string(text) + ": expected '" + message + "', got '" + error.what() + "'");
  }
  fail(file, line, std::string(text) + ": expected an exception with '" + message + "', got none");
}

struct Register {
  Register(const char* name, void (*run)()) { native_cases().push_back({name, run}); }
};

}  // namespace native_test

#define NATIVE_TEST(name)                                                               \
  static void native_case_##name();                                                     \
  static const native_test::Register native_register_##name(#name, native_case_##name); \
  static void native_case_##name()

#define CHECK(...) ((__VA_ARGS__) ? void() : native_test::fail(__FILE__, __LINE__, "expected " #__VA_ARGS__))
// The value under test first, the expected one second.
#define CHECK_EQ(a, b) native_test::check_equal(__FILE__, __LINE__, #a " == " #b, a, b)
#define CHECK_THROWS(expression, message) \
  native_test::check_throws(__FILE__, __LINE__, #expression, message, [&] { (void)(expression); })
