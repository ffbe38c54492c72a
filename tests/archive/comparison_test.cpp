// A comparison's file: links that follow to the runs, and a table that is replaced as a whole.
#include "core/archive/comparison.h"

#include <gmock/gmock.h>
#include <hdf5.h>

#include <filesystem>

#include "consist/error.h"
#include "core/archive/archive.h"
#include "core/archive/reader.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

void write_run(const std::string& path, double loss) {
  Archive archive(path, true);
  archive.define_steps({{"step", "1", "step"}, {"loss", "1", "loss"}});
  archive.append(std::vector<double>{1, loss});
  archive.finish("finished", "");
}

double read_number(hid_t file, const char* name, hsize_t row) {
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0) return -1;
  const hid_t space = H5Dget_space(dataset);
  std::vector<double> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Sclose(space);
  H5Dclose(dataset);
  return values.at(row);
}

const std::vector<ComparisonColumn> compared_columns = {{"tokens_per_second", "tokens/s"}, {"outcome", ""}};

TEST(Comparison, LinksLeadToTheRunsAlsoAfterAMove) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "made/runs");
  write_run(folder / "made/runs/a.h5", 2.5);
  write_run(folder / "made/runs/b.h5", 3.5);
  const std::vector<ComparedRun> runs = {{"a fp32", folder / "made/runs/a.h5", {100.0, "finished"}},
                                         {"b fp32", folder / "made/runs/b.h5", {200.0, "finished"}},
                                         {"c", "", {0.0, "unavailable"}}};
  write_comparison(folder / "made/comparison.h5", compared_columns, runs);
  std::filesystem::rename(folder / "made", folder / "moved");
  EXPECT_FALSE(std::filesystem::exists(folder / "moved/comparison.h5.partial"));

  const hid_t file = H5Fopen((folder / "moved/comparison.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  EXPECT_EQ(read_number(file, "/runs/a fp32/steps/loss", 0), 2.5);
  EXPECT_EQ(read_number(file, "/runs/b fp32/steps/loss", 0), 3.5);
  EXPECT_EQ(read_number(file, "/summary/tokens_per_second", 1), 200.0);
  EXPECT_EQ(H5Lexists(file, "/runs/c", H5P_DEFAULT), 0);
  const hid_t attribute = H5Aopen(file, "consist_comparison_version", H5P_DEFAULT);
  ASSERT_GE(attribute, 0);
  int version = -1;
  EXPECT_GE(H5Aread(attribute, H5T_NATIVE_INT, &version), 0);
  EXPECT_EQ(version, 1);
  H5Aclose(attribute);
  H5Fclose(file);
}

TEST(Comparison, IsReplacedAsAWhole) {
  const TemporaryFolder folder;
  const std::string path = folder / "comparison.h5";
  write_comparison(path, compared_columns, {{"a", "", {1.0, "finished"}}});
  write_comparison(path, compared_columns, {{"a", "", {1.0, "finished"}}, {"b", "", {7.0, "failed"}}});
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  EXPECT_EQ(read_number(file, "/summary/tokens_per_second", 1), 7.0);
  H5Fclose(file);
  EXPECT_THROW(write_comparison("/nowhere/c.h5", compared_columns, {}), SystemError);
}

TEST(Comparison, LinksToEveryRepeatAndIsReadBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "comparison.h5";
  write_comparison(path, compared_columns,
                   {{"b", folder / "b.h5", {1.0, "finished"}, {{"b.repeat2", folder / "b2.h5"}}}, {"a", "", {2.0, "failed"}}});
  const std::vector<std::pair<std::string, std::string>> links{{"b", folder / "b.h5"}, {"b.repeat2", folder / "b2.h5"}};
  EXPECT_EQ(linked_archives(path), links);
  EXPECT_THROW(linked_archives(folder / "none.h5"), SystemError);
}

TEST(Comparison, RulesAreChecked) {
  const TemporaryFolder folder;
  const std::string path = folder / "comparison.h5";
  EXPECT_THROW(write_comparison(path, compared_columns, {{"a/b", "", {1.0, "x"}}}), ProgramError);
  EXPECT_THROW(write_comparison(path, compared_columns, {{"a", "", {1.0, "x"}}, {"a", "", {1.0, "x"}}}), ProgramError);
  EXPECT_THROW(write_comparison(path, compared_columns, {{"a", "", {1.0}}}), ProgramError);
  EXPECT_THROW(write_comparison(path, compared_columns, {{"a", "", {1.0, "x"}}, {"b", "", {"y", "x"}}}), ProgramError);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace consist
