// Texts that are compared with files in tests/golden/programs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace consist::test {

/// Compares with tests/golden/programs/<name>.txt; CONSIST_UPDATE_GOLDEN=1 writes the file anew.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(CONSIST_SOURCE_DIR) + "/tests/golden/programs/" + name + ".txt";
  if (std::getenv("CONSIST_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << "there is no " << path << "; run once with CONSIST_UPDATE_GOLDEN=1 and read what it wrote";
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(golden.str(), text) << "if the change is meant, run with CONSIST_UPDATE_GOLDEN=1 and review the difference";
}

}  // namespace consist::test
