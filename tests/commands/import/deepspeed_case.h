// A DeepSpeed JSON and what a run makes of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/commands/import/foreign_file_case.h"

namespace consist::test {

class DeepspeedTest : public ForeignFileTest {
 protected:
  RunConfig config_of(const std::string& path, std::vector<std::string> words) {
    words.insert(words.begin(), {"--model=llama-tiny", "--deepspeed-config=" + path});
    return config_of_words(words);
  }
  RunConfig config_of_text(const std::string& file, const std::vector<std::string>& words = {}) {
    return config_of(written(file, "ds.json"), words);
  }
  RunConfig config_of(const nlohmann::json& file, const std::vector<std::string>& words = {}) {
    return config_of_text(file.dump(), words);
  }
  void expect_text_refused(const std::string& file, const std::string& message, const std::vector<std::string>& words = {}) {
    expect_refused_by([&] { config_of_text(file, words); }, file, message);
  }
  void expect_refused(const nlohmann::json& file, const std::string& message, const std::vector<std::string>& words = {}) {
    expect_text_refused(file.dump(), message, words);
  }
};

}  // namespace consist::test
