// Rows of Parquet are those of JSON Lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/datasets/opened.h"
#include "tests/python.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::Given;
using test::host;
using test::open;
using test::read;
using test::read_field;
using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Writes rows.jsonl and what it holds as rows.parquet, with small row groups, and files that are wrong.
const char* const script = R"(
import json, pathlib, sys
import pyarrow as pa, pyarrow.parquet as pq
folder = pathlib.Path(sys.argv[1])
rows = [json.loads(line) for line in open(folder / "rows.jsonl")]
table = pa.Table.from_pylist(rows)
pq.write_table(table, folder / "rows.parquet", row_group_size=700, compression="zstd")
message = pa.struct([("role", pa.string()), ("content", pa.large_string())])
large = pa.schema([("text", pa.dictionary(pa.int32(), pa.string())), ("messages", pa.large_list(message)), ("number", pa.int64())])
pq.write_table(pa.Table.from_pylist(rows, schema=large), folder / "large.parquet")
wrong = {"null": ["a", None], "number": [1, 2], "time": pa.array([1, 2], pa.timestamp("s")), "bytes": pa.array([b"a", b"b\xff"])}
for name, values in wrong.items():
    pq.write_table(pa.table({"text": values}), folder / f"{name}.parquet")
pq.write_table(pa.table({"text": pa.array([b"a", b"b\xff"]).view(pa.string())}), folder / "utf8.parquet")
pq.write_table(pa.table({"messages": [[{"role": "user", "content": "a"}], [{"role": "user", "content": None}]]}), folder / "chat.parquet")
)";

class ParquetDataset : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!host().has("dataset", "parquet")) GTEST_SKIP() << "this build has no Apache Arrow, and so no dataset 'parquet'";
    CONSIST_NEEDS_PYTHON(python);
    std::string rows;
    for (int i = 0; i < 1500; ++i) {
      rows += R"({"text": "row )" + std::to_string(i * 31 % 997) + R"( of th\u00e9 table", "number": )" + std::to_string(i) +
              R"(, "messages": [{"role": "user", "content": "say )" + std::to_string(i) +
              R"("}, {"role": "assistant", "content": "it is )" + std::to_string(i * 7) + "\"}]}\n";
    }
    write_whole(folder_ / "rows.jsonl", rows);
    const PythonResult made = run_python(python, {"-c", script, folder_.path().string()});
    ASSERT_EQ(made.status, 0) << made.output;
  }
  void expect_same(Given options) const {
    options["files"] = folder_ / "rows.jsonl";
    const auto lines = open("jsonl", options, 60);
    ASSERT_GT(lines->train_sequences(), 250);
    for (const char* file : {"rows.parquet", "large.parquet"}) {
      options["files"] = folder_ / file;
      const auto table = open("parquet", options, 60);
      ASSERT_EQ(table->train_sequences(), lines->train_sequences());
      ASSERT_EQ(table->fields(), lines->fields());
      for (std::int64_t index = 0; index < lines->train_sequences(); ++index) {
        ASSERT_EQ(read(*table, index, 60), read(*lines, index, 60)) << file;
        for (const Field& field : lines->fields())
          ASSERT_EQ(read_field(*table, field.name, index, 60), read_field(*lines, field.name, index, 60));
      }
    }
  }
  std::string refused(const std::string& file, const Given& more = {}) const {
    Given options{{"files", folder_ / file}};
    options.insert(more.begin(), more.end());
    return refusal<DataError>("parquet", options, 4);
  }
  const TemporaryFolder folder_;
};

TEST_F(ParquetDataset, HasTheRowsOfJsonLines) {
  expect_same({});
  expect_same({{"documents", "apart"}});
  expect_same({{"format", "chat"}, {"template", "chatml"}});
}

TEST_F(ParquetDataset, BadFilesAreNamedByFileAndRow) {
  EXPECT_THAT(refused("rows.parquet", {{"field", "body"}}),
              AllOf(HasSubstr("rows.parquet, row 1 has no field \"body\"; it has \"text\", \"number\", \"messages\""),
                    HasSubstr("--parquet.field")));
  EXPECT_THAT(refused("rows.parquet", {{"field", "messages"}}),
              AllOf(HasSubstr("row 1, field \"messages\" is no text"), HasSubstr("--parquet.format chat")));
  EXPECT_THAT(refused("null.parquet"), HasSubstr("null.parquet, row 2, field \"text\" is no text but null"));
  EXPECT_THAT(refused("number.parquet"), HasSubstr("number.parquet, row 1, field \"text\" is no text but 1"));
  EXPECT_THAT(refused("time.parquet"),
              AllOf(HasSubstr("time.parquet, row 1, field \"text\" is no text but"), HasSubstr("timestamp")));
  EXPECT_THAT(refused("bytes.parquet"), AllOf(HasSubstr("is no text but"), HasSubstr("binary")));
  EXPECT_THAT(refused("utf8.parquet"), HasSubstr("utf8.parquet"));
  EXPECT_THAT(refused("chat.parquet", {{"format", "chat"}, {"template", "chatml"}}),
              HasSubstr("chat.parquet, row 2, field \"messages\", message 1 has the content null"));
  const std::string whole = read_whole(folder_ / "rows.parquet");
  write_whole(folder_ / "cut.parquet", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(refused("cut.parquet"), HasSubstr("cut.parquet cannot be read as Parquet"));
  write_whole(folder_ / "none.parquet", "{\"text\": \"a\"}\n");
  EXPECT_THAT(refused("none.parquet"), HasSubstr("none.parquet cannot be read as Parquet"));
  std::string damaged = whole;
  for (std::size_t at = 200; at < 260; ++at) damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
  write_whole(folder_ / "damaged.parquet", damaged);
  EXPECT_THAT(refused("damaged.parquet"), HasSubstr("damaged.parquet"));
}

}  // namespace
}  // namespace consist
