#include "launch/view/report/program_lines.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "consist/error.h"
#include "core/archive/archived_json.h"

namespace consist::launch {
namespace {

constexpr std::size_t longest_line = 400;

/// The first place from `at` on where a character begins.
std::size_t next_character(const std::string& text, std::size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

/// Shortens a line that lists many tensors to its beginning, the op with its first inputs, and the end, which has tag and bytes.
std::string shortened(const std::string& line) {
  constexpr std::size_t beginning = 80, of_op = 160, end = 150;
  const std::size_t tail = next_character(line, line.size() - end), op = std::min(line.find(" = "), tail);
  std::string text = line.substr(0, next_character(line, beginning));
  std::size_t at = text.size();
  if (op > at) text += " …";
  at = std::max(at, op);
  if (op < tail) text += line.substr(at, next_character(line, std::min(op + of_op, tail)) - at);
  return text + " … " + line.substr(tail);
}

/// Lines that begin with their number, as to_text() prints instructions; inputs and states begin with a word.
std::map<std::size_t, std::string> instructions_of(const std::string& program) {
  std::map<std::size_t, std::string> lines;
  std::istringstream stream(program);
  for (std::string line; std::getline(stream, line);) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), index);
    if (error != std::errc() || end == line.data() + line.size() || *end != ' ') continue;
    if (line.size() > longest_line) line = shortened(line);
    lines.emplace(index, std::move(line));
  }
  return lines;
}

}  // namespace

ProgramLines::ProgramLines(const ArchiveReader& archive) {
  const std::string text = archive.packed_text("/programs");
  if (text.empty()) return;
  const nlohmann::json json = archived_json(text);
  const auto classes = json.is_object() ? json.find("classes") : json.end();
  if (classes == json.end() || !classes->is_array())
    throw DataError("/programs of an archive has no list of classes: it is damaged");
  for (const nlohmann::json& of_class : *classes) {
    if (!of_class.is_object() || !of_class.contains("text") || !of_class["text"].is_string())
      throw DataError("/programs of an archive has a class without a text: it is damaged");
    classes_.push_back(instructions_of(of_class["text"].get<std::string>()));
  }
}

std::string ProgramLines::line(std::size_t of_class, std::size_t instruction) const {
  if (of_class >= classes_.size()) return {};
  const auto found = classes_[of_class].find(instruction);
  return found == classes_[of_class].end() ? std::string() : found->second;
}

}  // namespace consist::launch
