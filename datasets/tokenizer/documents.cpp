#include "datasets/tokenizer/documents.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "datasets/tokenizer/progress.h"
#include "datasets/tokenizer/unicode.h"

namespace consist::tokenizer {
namespace {

constexpr std::size_t block_bytes = 4 << 20;
constexpr std::int64_t most_file_bytes = std::int64_t{1} << 31;  // of a document that must be held as a whole

/// Encodes documents and keeps count.
class Run {
 public:
  Run(const Tokenizer& tokenizer, const TextFiles& text, const std::function<void(std::span<const std::int32_t>)>& sink)
      : tokenizer_(tokenizer), text_(text), sink_(sink) {
    std::int64_t all_bytes = 0;
    for (const std::string& path : text.files) all_bytes += InputFile(path).size();
    progress_.emplace(all_bytes);
  }

  void file(const std::string& path) {
    const InputFile file(path);
    if (text_.documents == DocumentKind::line) {
      lines(file);
    } else {
      if (file.size() > most_file_bytes) {
        throw DataError(path + " has " + std::to_string(file.size()) +
                        " bytes, too many for one document; take its lines as documents");
      }
      std::string whole(static_cast<std::size_t>(file.size()), '\0');
      file.read(0, whole.data(), whole.size());
      document(whole, path, 0);
      counts_.bytes += file.size();
    }
    ++counts_.files;
  }

  const TextCounts& counts() const { return counts_; }

 private:
  void document(std::string_view text, const std::string& path, std::int64_t offset) {
    if (text.empty()) return;
    if (const std::size_t bad = invalid_utf8(text); bad != std::string_view::npos) {
      throw DataError(path + " is not valid UTF-8 at byte " + std::to_string(offset + static_cast<std::int64_t>(bad)) +
                      "; convert it first, for example with iconv");
    }
    std::vector<std::int32_t> ids = tokenizer_.encode(text);
    if (text_.separator) ids.push_back(*text_.separator);
    sink_(ids);
    ++counts_.documents;
    counts_.tokens += static_cast<std::int64_t>(ids.size());
  }

  void lines(const InputFile& file) {
    std::string pending;      // read, and not yet encoded
    std::int64_t offset = 0;  // of pending
    for (std::int64_t at = 0; at < file.size() || !pending.empty();) {
      const auto more = static_cast<std::size_t>(std::min<std::int64_t>(block_bytes, file.size() - at));
      const std::size_t searched = pending.size();
      pending.resize(searched + more);
      file.read(at, pending.data() + searched, more);
      at += static_cast<std::int64_t>(more);
      counts_.bytes += static_cast<std::int64_t>(more);
      const bool last = at == file.size();
      std::size_t begin = 0, search = searched;
      while (begin < pending.size()) {
        std::size_t end = pending.find('\n', search);
        if (end == std::string::npos && !last) break;
        end = std::min(end, pending.size());
        std::string_view line = std::string_view(pending).substr(begin, end - begin);
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        document(line, file.path(), offset + static_cast<std::int64_t>(begin));
        begin = search = end + 1;
      }
      begin = std::min(begin, pending.size());
      pending.erase(0, begin);
      offset += static_cast<std::int64_t>(begin);
      progress_->say(counts_.bytes, counts_.tokens);
    }
  }

  const Tokenizer& tokenizer_;
  const TextFiles& text_;
  const std::function<void(std::span<const std::int32_t>)>& sink_;
  TextCounts counts_;
  std::optional<TokenizingProgress> progress_;
};

}  // namespace

TextCounts tokenize_files(const Tokenizer& tokenizer, const TextFiles& text,
                          const std::function<void(std::span<const std::int32_t>)>& sink) {
  Run run(tokenizer, text, sink);
  for (const std::string& path : text.files) run.file(path);
  return run.counts();
}

namespace {

/// The end-of-text token that a file beside tokenizer.json declares, if the tokenizer has it.
std::optional<std::int32_t> declared_end(const Tokenizer& tokenizer, const std::filesystem::path& file, const char* key) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::nullopt;
  const nlohmann::json json = read_json(file.string());
  if (!json.is_object() || !json.contains(key)) return std::nullopt;
  nlohmann::json end = json[key];
  if (end.is_array() && !end.empty()) end = nlohmann::json(end[0]);  // several: the first is the one of plain text
  if (end.is_object() && end.contains("content")) end = nlohmann::json(end["content"]);
  if (end.is_string()) return tokenizer.token(end.get<std::string>());
  const bool is_id =
      end.is_number_unsigned() && end.get<std::uint64_t>() < static_cast<std::uint64_t>(tokenizer.vocabulary_size());
  return is_id ? std::optional(end.get<std::int32_t>()) : std::nullopt;
}

}  // namespace

std::optional<std::int32_t> separator_token(const Tokenizer& tokenizer, const std::string& tokenizer_json,
                                            const std::string& name, const std::string& option) {
  if (name == "none") return std::nullopt;
  if (name != "auto") {
    if (const auto id = tokenizer.added_token(name)) return id;
    throw UsageError("--" + option + ": the tokenizer has no added token '" + name + "'; 'none' leaves the separator out");
  }
  for (const char* known : {"<|endoftext|>", "<|end_of_text|>"}) {
    if (const auto id = tokenizer.added_token(known)) return id;
  }
  const std::filesystem::path folder = std::filesystem::path(tokenizer_json).parent_path();
  for (const auto& [file, key] : {std::pair{"tokenizer_config.json", "eos_token"},
                                  {"special_tokens_map.json", "eos_token"},
                                  {"generation_config.json", "eos_token_id"},
                                  {"config.json", "eos_token_id"}}) {
    if (const auto id = declared_end(tokenizer, folder / file, key)) return id;
  }
  return tokenizer.added_token("</s>");
}

std::string no_separator_warning(const std::string& tokenizer_json, const std::string& option) {
  return "--" + option + " auto: neither " + in_quotes(tokenizer_json) +
         " nor the files beside it name an end-of-text token, so nothing stands between documents; name one of its added tokens, "
         "or "
         "none";
}

}  // namespace consist::tokenizer
