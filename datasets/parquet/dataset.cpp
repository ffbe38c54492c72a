// Parquet: a text or a conversation in each row, tokenized when the run starts and held in memory.
#include "consist/plugin.h"
#include "datasets/parquet/parquet_rows.h"
#include "datasets/records/record_dataset.h"

namespace {

using namespace consist;

class Parquet final : public records::RecordDataset {
 public:
  explicit Parquet(const Options& options) : RecordDataset("parquet", options, records::open_parquet) {}
};

}  // namespace

CONSIST_PLUGIN(dataset, consist::Dataset, Parquet, "parquet", "1.0.0",
               "Parquet files with texts or conversations; loss on the roles that are chosen");
CONSIST_PLUGIN_OPTIONS(CONSIST_RECORD_OPTIONS("Parquet"));
