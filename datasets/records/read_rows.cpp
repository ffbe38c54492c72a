#include "datasets/records/read_rows.h"

#include <nlohmann/json.hpp>

#include "consist/files.h"
#include "datasets/tokenizer/progress.h"

namespace consist::records {

void read_rows(const std::vector<std::string>& paths,
               const std::function<std::unique_ptr<RecordSource>(const std::string&)>& open, const OnRow& on_row) {
  std::int64_t all_bytes = 0, done = 0;
  for (const std::string& path : paths) all_bytes += InputFile(path).size();
  tokenizer::TokenizingProgress progress(all_bytes);
  nlohmann::ordered_json record;
  for (const std::string& path : paths) {
    const std::unique_ptr<RecordSource> source = open(path);
    while (source->next(record)) progress.say(done + source->bytes(), on_row(record, *source));
    done += source->bytes();
  }
}

}  // namespace consist::records
