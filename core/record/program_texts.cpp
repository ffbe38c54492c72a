#include "core/record/program_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/program/printer.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ProgramText& program) {
  return {{"text", program.text}, {"left_out", program.left_out}};
}

}  // namespace

ProgramText program_text(const Program& program, std::size_t most) {
  ProgramText result{.text = to_text(program)};
  if (result.text.size() <= most) return result;
  const std::size_t end = result.text.rfind('\n', most == 0 ? 0 : most - 1);
  const std::size_t kept = end == std::string::npos ? 0 : end + 1;
  result.left_out =
      static_cast<std::size_t>(std::count(result.text.begin() + static_cast<std::ptrdiff_t>(kept), result.text.end(), '\n'));
  result.text.resize(kept);
  return result;
}

std::string programs_json(Job& job, const Program& own, int ranks) {
  const std::vector<int> classes = own.stage_axis < 0 ? std::vector<int>{0} : own.mesh.group(0, own.stage_axis);
  if (std::find(classes.begin(), classes.end(), job.rank()) == classes.end()) return {};
  const Json of_this = json_of(program_text(own, most_program_bytes / classes.size()));
  const std::vector<std::string> texts =
      job.gather("programs", of_this.dump(-1, ' ', false, Json::error_handler_t::replace), job.timeout(), classes);
  if (job.rank() != 0) return {};
  Json json{{"classes", Json::array()}};
  for (std::size_t c = 0; c < classes.size(); ++c) {
    Json whole{{"rank", classes[c]}, {"ranks", ranks / static_cast<int>(classes.size())}};
    whole.update(Json::parse(texts[c]));
    json["classes"].push_back(std::move(whole));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace consist
