// Conversations as token ids.
#pragma once

#include <string>

#include "datasets/records/chat_writer.h"
#include "datasets/tokenizer/tokenizer.h"

namespace consist::records {

/// A conversation as `writer` writes it; marked are the ids of learnt words. Throws DataError that begins with `place`.
tokenizer::MarkedIds encoded_chat(const ChatWriter& writer, const tokenizer::Tokenizer& tokenizer,
                                  const Conversation& conversation, const std::string& place);

}  // namespace consist::records
