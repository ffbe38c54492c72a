#include "launch/report/program_lines.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "consist/error.h"

namespace consist::launch {
namespace {

constexpr std::size_t longest_line = 400;

/// Lines that begin with their number, as to_text() prints instructions; inputs and states begin with a word.
std::map<std::size_t, std::string> instructions_of(const std::string& program) {
  std::map<std::size_t, std::string> lines;
  std::istringstream stream(program);
  for (std::string line; std::getline(stream, line);) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), index);
    if (error != std::errc() || end == line.data() + line.size() || *end != ' ') continue;
    if (line.size() > longest_line) {
      std::size_t kept = longest_line;
      while (kept > 0 && (static_cast<unsigned char>(line[kept]) & 0xC0U) == 0x80U) --kept;  // whole characters
      line = line.substr(0, kept) + " …";
    }
    lines.emplace(index, std::move(line));
  }
  return lines;
}

}  // namespace

ProgramLines::ProgramLines(const ArchiveReader& archive) {
  const std::string text = archive.packed_text("/programs");
  if (text.empty()) return;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) throw DataError("/programs of an archive is no JSON: it is damaged");
  for (const nlohmann::json& of_class : json.at("classes"))
    classes_.push_back(instructions_of(of_class.at("text").get<std::string>()));
}

std::string ProgramLines::line(std::size_t of_class, std::size_t instruction) const {
  if (of_class >= classes_.size()) return {};
  const auto found = classes_[of_class].find(instruction);
  return found == classes_[of_class].end() ? std::string() : found->second;
}

}  // namespace consist::launch
