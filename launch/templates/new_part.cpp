#include "launch/templates/new_part.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"

namespace consist::launch {
namespace {

// A record's name has 31 characters, and an op's model is called NAME-decoder.
constexpr std::size_t longest_name = 23;

/// "my-average" is MyAverage, "average" MyAverage, too: no public class begins so, while one may be called as a name or its kind
/// are.
std::string class_of(std::string_view name) {
  std::string text = name.starts_with("my-") ? "" : "My";
  bool begins = true;
  for (const char c : name) {
    if (c != '-') text += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = c == '-';
  }
  return text;
}

std::string snake_of(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// The longest of the replacements whose text stands at `at`; null if there is none.
const Replacement* replacement_at(std::string_view text, std::size_t at, std::span<const Replacement> all) {
  const Replacement* longest = nullptr;
  for (const Replacement& one : all) {
    if (text.substr(at, one.from.size()) == one.from && (longest == nullptr || one.from.size() > longest->from.size()))
      longest = &one;
  }
  return longest;
}

/// One pass, so that a name that holds another's text stays whole. Notes which ones occurred.
std::string replaced(std::string_view text, std::span<const Replacement> all, std::string_view name,
                     std::set<std::string_view>& occurred) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (const Replacement* const one = replacement_at(text, at, all)) {
      result += with_name(one->to, name);
      occurred.insert(one->from);
      at += one->from.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

/// Options in which build/ is CMake's variable.
std::string in_cmake(std::string_view options) {
  std::string text(options);
  for (const std::string_view build : {" build/", "=build/"}) {
    for (std::size_t at = 0; (at = text.find(build, at)) != text.npos;) text.replace(at + 1, 5, "${CMAKE_BINARY_DIR}");
  }
  return text;
}

/// The lines of CMakeLists.txt by which ctest checks the part and trains with it.
std::string tests_of(const PartTemplate& part) {
  std::string text = "\n" + std::string(part.prepare);
  text += part.prepare.empty() ? "" : "\n";
  text += "# ctest --test-dir build\nenable_testing()\n";
  if (part.has_suite)
    text += "add_test(NAME {name}.check COMMAND ${CONSIST_EXECUTABLE} check\n         $<TARGET_FILE:consist_" +
            std::string(part.plugin_kind) + "_{name}>" + (part.check.empty() ? "" : " ") + in_cmake(part.check) + ")\n";
  text += "add_test(NAME {name}.train COMMAND ${CONSIST_EXECUTABLE} train --plugin ${CMAKE_BINARY_DIR}/lib/consist/plugins\n";
  return text + "         " + in_cmake(part.train) + " --device cpu --sequence 32 --batch 2 --steps 2)\n";
}

std::string readme_of(const PartTemplate& part) {
  const std::string kind(part.kind);
  std::string text = "# {name}\n\nA part of the kind " + kind + " for Consist. " + std::string(part.edit) +
                     ". docs/plugins.md says what is left to parts of each kind, and what they must not know.\n\n"
                     "```sh\ncmake -B build -DCMAKE_PREFIX_PATH=$(consist sdk) && cmake --build build\n"
                     "ctest --test-dir build --output-on-failure\n";
  if (part.has_suite)
    text += "consist check build/lib/consist/plugins/" + std::string(part.plugin_kind) + "-{name}.so" +
            (part.check.empty() ? "" : " ") + std::string(part.check) + "\n";
  return text + "consist train --plugin build/lib/consist/plugins " + std::string(part.train) + " --steps 20\n```\n";
}

}  // namespace

void check_part_name(std::string_view name) {
  const bool legal =
      !name.empty() && name.front() >= 'a' && name.front() <= 'z' && name.back() != '-' && name.find("--") == name.npos &&
      std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (!legal)
    throw UsageError(
        "the name is '" + printable(std::string(name)) +
        "'; it must be words of small letters and digits, joined by '-', and begin with a letter, such as 'my-average'");
  if (name.size() > longest_name)
    throw UsageError("the name '" + std::string(name) + "' has " + std::to_string(name.size()) + " characters; at most " +
                     std::to_string(longest_name) + " can be taken");
}

std::string with_name(std::string_view text, std::string_view name) {
  const std::pair<std::string_view, std::string> fields[] = {
      {"{name}", std::string(name)}, {"{snake}", snake_of(name)}, {"{Class}", class_of(name)}};
  std::string result(text);
  for (const auto& [field, value] : fields) {
    for (std::size_t at = 0; (at = result.find(field, at)) != result.npos; at += value.size())
      result.replace(at, field.size(), value);
  }
  return result;
}

std::map<std::string, std::string> files_of_part(const PartTemplate& part, std::string_view name,
                                                 const std::filesystem::path& examples) {
  constexpr std::int64_t most_bytes = 1 << 20;
  std::map<std::string, std::string> files;
  std::set<std::string_view> occurred;
  for (const TemplateFile& file : part.files)
    files[file.to] = replaced(read_text((examples / file.from).string(), most_bytes), part.replacements, name, occurred);
  for (const Replacement& one : part.replacements) {
    if (!occurred.contains(one.from))
      throw ProgramError("the template of " + std::string(part.kind) + " does not fit the examples in " + examples.string() +
                         ", in which '" + std::string(one.from) + "' does not stand; install Consist again");
  }
  files["CMakeLists.txt"] += with_name(tests_of(part), name);
  files["README.md"] = with_name(readme_of(part), name);
  return files;
}

}  // namespace consist::launch
