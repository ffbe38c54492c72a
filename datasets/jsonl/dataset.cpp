// JSON Lines: a text or a conversation in each line, tokenized when the run starts and held in memory.
#include "consist/plugin.h"
#include "datasets/records/json_lines.h"
#include "datasets/records/record_dataset.h"

namespace {

using namespace consist;

class Jsonl final : public records::RecordDataset {
 public:
  explicit Jsonl(const Options& options)
      : RecordDataset("jsonl", options, [](const std::string& file, const std::vector<std::string>& /*wanted*/) {
          return records::open_json_lines(file);
        }) {}
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Jsonl, "jsonl", "1.0.0",
               "JSON Lines with texts or conversations; loss on the roles that are chosen");
CONSIST_PLUGIN_OPTIONS(CONSIST_RECORD_OPTIONS("JSON Lines (.jsonl, .jsonl.gz)"));
