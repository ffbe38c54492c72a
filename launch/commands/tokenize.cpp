// consist tokenize: text files into a file of tokens, for the dataset `tokens`.
#include <cstdio>
#include <filesystem>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/base/output_place.h"
#include "core/base/sha256.h"
#include "datasets/packing/file_list.h"
#include "datasets/packing/token_file.h"
#include "datasets/tokenizer/documents.h"
#include "launch/commands/commands.h"

namespace consist::commands {
namespace {

using enum OptionKind;

constexpr RunOption tokenize_options[] = {
    with_letter('o', valued("output", text, "", "FILE", "the file of tokens; it appears when it is complete")),
    valued("tokenizer", text, "", "FILE",
           "a Hugging Face tokenizer.json, or a model's folder with one; left out: the one that ships with Consist"),
    valued("documents", choice, "file", "KIND", "what makes a document: file or line", "file|line"),
    valued("separator", text, "auto", "TOKEN", "added token behind each document, auto (end of text) or none"),
    a_switch("overwrite", "replace a file that is there already"),
};

int tokenize(const CommandLine& line) {
  if (!line.has("output")) throw UsageError("--output is missing: the file of tokens to write");
  if (line.operands.empty()) throw UsageError("no text is given: name files or folders of UTF-8 text");
  const std::string output = line.text("output"), separator = line.value("separator");
  if (check_output({"--output", output, line.flag("overwrite")}))
    throw UsageError("--output " + output + " is no file; the length of the tokens is written behind them, at its beginning");

  std::string path = line.has("tokenizer") ? line.text("tokenizer") : packing::shipped_path("text/tokenizer.json");
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) path += "/tokenizer.json";
  const auto tokenizer = tokenizer::Tokenizer::from_file(path);
  tokenizer::TextFiles text{
      .documents = line.value("documents") == "line" ? tokenizer::DocumentKind::line : tokenizer::DocumentKind::file,
      .separator = tokenizer::separator_token(tokenizer, path, separator, "separator")};
  if (!text.separator && separator == "auto") log::warn(tokenizer::no_separator_warning(path, "separator"));
  text.files = packing::list_files(line.operands, "text");
  packing::TokenFileHeader header{.vocabulary = static_cast<std::uint32_t>(tokenizer.vocabulary_size()),
                                  .tokenizer_sha256 = sha256_of(InputFile(path))};
  if (text.separator) header.separator = static_cast<std::uint32_t>(*text.separator);
  packing::TokenFileWriter writer(behind_links(output), header);
  const tokenizer::TextCounts counts =
      tokenize_files(tokenizer, text, [&](std::span<const std::int32_t> ids) { writer.write(ids); });
  if (counts.tokens == 0)
    throw DataError("the text is empty: " + packing::count_of(counts.files, "file") + " without a character");
  writer.commit();
  std::printf("%s: %s of %s in %s, %d bytes each\n", printable(output).c_str(), packing::count_of(counts.tokens, "token").c_str(),
              packing::count_of(counts.documents, "document").c_str(), packing::count_of(counts.files, "file").c_str(),
              writer.header().width);
  return 0;
}

}  // namespace

constinit const Command tokenize_command{
    .name = "tokenize",
    .summary = "turn text into a file of tokens for the dataset `tokens`",
    .usage = "--output FILE [OPTIONS] FILE|FOLDER...",
    .about =
        "Reads files of UTF-8 text, also those in folders, and writes their tokens as one file, which the dataset `tokens`\n"
        "reads.\n",
    .own = tokenize_options,
    .example = "consist tokenize --tokenizer llama/tokenizer.json --documents line --output books.tokens books/\n",
    .operand = "FILE",
    .run = tokenize};

}  // namespace consist::commands
