#include "msl_source.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <sstream>

namespace soft_metal {
namespace {

// A file that is removed with its name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int file = mkstemp(name_);
    if (file >= 0) close(file);
    std::ofstream(name_) << text;
  }
  ~TemporaryFile() { unlink(name_); }
  const char* name() const { return name_; }

 private:
  char name_[32] = "/tmp/soft-metal-XXXXXX";
};

// Blanks the includes of Metal's headers; other ones are an error.
std::string without_includes(const std::string& source, std::string& error) {
  static const std::regex include("^\\s*#\\s*include\\s*(.*?)\\s*$");
  static const std::regex metal("<(metal_\\w+|simd/simd\\.h)>.*");
  std::istringstream lines(source);
  std::string out, line;
  for (int number = 1; std::getline(lines, line); ++number, out += '\n') {
    std::smatch found;
    if (!std::regex_match(line, found, include)) {
      out += line;
    } else if (!std::regex_match(found[1].str(), metal) && error.empty()) {
      error = "program_source:" + std::to_string(number) + ":10: fatal error: " + found[1].str() +
              " file not found";
    }
  }
  return out;
}

std::string preprocessed(const std::string& source, const std::map<std::string, std::string>& macros,
                         std::string& error) {
  std::string text;
  for (const auto& [name, value] : macros) text += "#define " + name + " " + value + "\n";
  text += "#line 1 \"program_source\"\n" + source;
  const TemporaryFile file(text);
  const std::string command = std::string("'" SOFT_METAL_COMPILER "' -E -P -w -x c++ -std=c++20 -nostdinc") +
                              " -D__METAL__=1 -D__METAL_VERSION__=310 -D__HAVE_BFLOAT__=1 " + file.name() +
                              " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char piece[4096];
  for (size_t size; pipe && (size = std::fread(piece, 1, sizeof piece, pipe)) > 0;) out.append(piece, size);
  if (!pipe || pclose(pipe) != 0) error = "program_source: " + out;
  return out;
}

// Past the string or character literal that starts at `at`.
size_t past_literal(const std::string& text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at)
    if (text[at] == '\\') ++at;
  return at + 1;
}

// Declarations and statements: what lies between ; { } outside of parentheses and brackets.
std::vector<std::string> split(const std::string& text, std::string& error) {
  std::vector<std::string> parts(1);
  std::string open;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const size_t end = past_literal(text, i);
      parts.back() += text.substr(i, end - i);
      i = end;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) {
        error = std::string("program_source: error: extraneous '") + c + "'";
        return {};
      }
      open.pop_back();
    }
    const bool nested = open.find_first_of(")]") != std::string::npos;
    if (!nested && (c == ';' || c == '{' || c == '}'))
      parts.emplace_back();
    else
      parts.back() += c;
    ++i;
  }
  if (!open.empty()) error = std::string("program_source: error: expected '") + open.back() + "'";
  return parts;
}

// "a" "b" is ab.
std::string joined(const std::string& literals) {
  std::string out;
  for (size_t i = 0; i < literals.size();) {
    if (literals[i] != '"') {
      ++i;
      continue;
    }
    const size_t end = past_literal(literals, i);
    out += literals.substr(i + 1, end - i - 2);
    i = end;
  }
  return out;
}

// The host name of a declaration, empty when it is not a kernel that the host could name.
std::string kernel_name(const std::string& declaration) {
  static const std::regex kernel("\\bkernel\\b");
  static const std::regex host_name("\\bhost_name\\s*\\(([^)]*)\\)");
  static const std::regex attribute("\\[\\[(?:(?!\\]\\]).|\\s)*\\]\\]");
  static const std::regex function("(\\w+)\\s*\\(");
  static const std::regex generic("^\\s*template\\b");
  static const std::regex literal("\"(?:[^\"\\\\]|\\\\.)*\"");
  std::smatch found;
  if (declaration.find("kernel") == std::string::npos) return "";
  if (!std::regex_search(std::regex_replace(declaration, literal, ""), kernel)) return "";
  if (std::regex_search(declaration, found, host_name)) return joined(found[1]);
  if (std::regex_search(declaration, generic)) return "";
  const std::string plain = std::regex_replace(declaration, attribute, " ");
  return std::regex_search(plain, found, function) ? found[1].str() : "";
}

}  // namespace

SourceResult read_source(const std::string& source, const std::map<std::string, std::string>& macros) {
  SourceResult result;
  const std::string text = without_includes(source, result.error);
  if (!result.error.empty()) return result;
  const std::string expanded = preprocessed(text, macros, result.error);
  if (!result.error.empty()) return result;
  for (const std::string& part : split(expanded, result.error)) {
    const std::string name = kernel_name(part);
    if (!name.empty()) result.kernels.push_back(name);
  }
  return result;
}

}  // namespace soft_metal
