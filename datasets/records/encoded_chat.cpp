#include "datasets/records/encoded_chat.h"

#include <vector>

#include "consist/error.h"

namespace consist::records {

tokenizer::MarkedIds encoded_chat(const ChatWriter& writer, const tokenizer::Tokenizer& tokenizer,
                                  const Conversation& conversation, const std::string& place) {
  const WrittenChat written = writer.write(conversation, place);
  std::vector<tokenizer::MarkedText> parts;
  std::size_t at = 0;
  for (const auto& [begin, end] : written.learnt) {
    parts.push_back({written.text.substr(at, begin - at), false});
    parts.push_back({written.text.substr(begin, end - begin), true});
    at = end;
  }
  parts.push_back({written.text.substr(at), false});
  try {
    return tokenizer.encode_marked(parts);
  } catch (const DataError& error) {  // an expression of the tokenizer that does not come to an end
    throw DataError(place + ": " + error.what());
  }
}

}  // namespace consist::records
