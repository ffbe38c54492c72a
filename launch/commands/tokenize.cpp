// consist tokenize: text files into a file of tokens, for the dataset `tokens`.
#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

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

namespace po = boost::program_options;

po::options_description options() {
  po::options_description options("Options", 110);
  options.add_options()("output,o", po::value<std::string>()->value_name("FILE"),
                        "the file of tokens; it appears when it is complete")(
      "tokenizer", po::value<std::string>()->value_name("FILE"),
      "a Hugging Face tokenizer.json, or a model's folder with one; left out: the one that ships with Consist")(
      "documents", po::value<std::string>()->default_value("file")->value_name("KIND"), "what makes a document: file or line")(
      "separator", po::value<std::string>()->default_value("auto")->value_name("TOKEN"),
      "added token behind each document, auto (end of text) or none")(
      "overwrite", po::bool_switch(), "replace a file that is there already")("help", "this text");
  return options;
}

po::variables_map parse(const Arguments& arguments) {
  po::options_description all = options();
  all.add_options()("input", po::value<std::vector<std::string>>());
  po::positional_options_description inputs;
  inputs.add("input", -1);
  po::variables_map values;
  try {
    const auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(all).positional(inputs).style(style).run(), values);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; see consist tokenize --help");
  }
  return values;
}

}  // namespace

int tokenize(const Arguments& arguments) {
  const po::variables_map values = parse(arguments);
  if (values.count("help") != 0) {
    std::printf(
        "usage: consist tokenize --output FILE [OPTIONS] FILE|FOLDER...\n\n"
        "example: consist tokenize --tokenizer llama/tokenizer.json --documents line --output books.tokens books/\n\n");
    options().print(std::cout, 20);
    return 0;
  }
  if (values.count("output") == 0) throw UsageError("--output is missing: the file of tokens to write");
  if (values.count("input") == 0) throw UsageError("no text is given: name files or folders of UTF-8 text");
  const std::string output = values["output"].as<std::string>();
  const std::string documents = values["documents"].as<std::string>();
  if (documents != "file" && documents != "line") throw UsageError("--documents is '" + documents + "'; it can be file or line");
  if (check_output({"--output", output, values["overwrite"].as<bool>()}))
    throw UsageError("--output " + output + " is no file; the length of the tokens is written behind them, at its beginning");

  std::string path =
      values.count("tokenizer") != 0 ? values["tokenizer"].as<std::string>() : packing::shipped_path("text/tokenizer.json");
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) path += "/tokenizer.json";
  const auto tokenizer = tokenizer::Tokenizer::from_file(path);
  tokenizer::TextFiles text{
      .documents = documents == "line" ? tokenizer::DocumentKind::line : tokenizer::DocumentKind::file,
      .separator = tokenizer::separator_token(tokenizer, path, values["separator"].as<std::string>(), "separator")};
  if (!text.separator && values["separator"].as<std::string>() == "auto")
    log::warn(tokenizer::no_separator_warning(path, "separator"));
  text.files = packing::list_files(values["input"].as<std::vector<std::string>>(), "text");
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

}  // namespace consist::commands
