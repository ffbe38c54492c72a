// Files that are missing, cut off, corrupt or not what they claim to be, and places that cannot be written: named, with the
// reason.
#include <sys/stat.h>

#include "tests/commands/bad_input.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

const std::string golden = CONSIST_SOURCE_DIR "/tests/golden/hf/";

class BadFiles : public test::BadInputTest {
 protected:
  /// A copy of a small reference model.
  void make_model(const std::string& name) const { fs::copy(golden + "llama-tied", folder_ / name); }
  void rewrite(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read_whole(folder_ / name);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_whole(folder_ / name, text.replace(at, from.size(), to));
  }
  /// Expects `consist train` to refuse the model and to print `says`, on one rank and on three.
  void expect_model_refused(const std::string& model, const std::vector<std::string>& says, int status = 1) const {
    const std::string train =
        "train --device cpu --dataset synthetic --sequence 16 --batch 1 --steps 1 --archive a.h5 --model " + model;
    expect_refused({{train, status, says}, {train + " --ranks 3", status, says}});
  }

  const std::string on_text = "train --device cpu --model llama-tiny --sequence 16 --batch 1 --steps 1 --archive a.h5";
};

TEST_F(BadFiles, Configurations) {
  const auto model = [&](const std::string& name, const std::string& config) {
    make_model(name);
    write_whole(folder_ / (name + "/config.json"), config);
  };
  const std::string whole = read_whole(golden + "llama-tied/config.json");
  fs::create_directory(folder_ / "none");
  model("empty", "");
  model("cut", whole.substr(0, 100));
  model("list", "[]");
  model("nameless", "{}");
  model("binary", std::string("\0\1\2\xff", 4));
  expect_model_refused("none", {"none/config.json"});
  expect_model_refused("empty", {"empty/config.json is no valid JSON"});
  expect_model_refused("cut", {"cut/config.json is no valid JSON"});
  expect_model_refused("list", {"list/config.json", "no JSON object"});
  expect_model_refused("nameless", {"nameless/config.json", "\"architectures\""});
  expect_model_refused("binary", {"binary/config.json is no valid JSON"});

  // Neither may be waited for, and a message must not need a stack as deep as the file.
  make_model("pipe");
  fs::remove(folder_ / "pipe/config.json");
  ASSERT_EQ(mkfifo((folder_ / "pipe/config.json").c_str(), 0600), 0);
  expect_model_refused("pipe", {"pipe/config.json", "no regular file"});
  make_model("device");
  fs::remove(folder_ / "device/config.json");
  fs::create_symlink("/dev/zero", folder_ / "device/config.json");
  expect_model_refused("device", {"device/config.json", "no regular file"});
  model("nested", R"({"architectures": ["LlamaForCausalLM"], "hidden_act": )" + std::string(100'000, '['));
  expect_model_refused("nested", {"nested/config.json is nested deeper", "\"hidden_act\""});

  model("hostile", R"({"architectures": ["\u001b[2J\u001b]0;title\u0007"]})");
  expect_model_refused("hostile", {"the architecture \"\\u001b[2J\\u001b]0;title\\u0007\""});

  const std::vector<std::tuple<std::string, std::string, std::string>> changes{
      {"LlamaForCausalLM", "GPT2LMHeadModel", "no model plugin knows the architecture \"GPT2LMHeadModel\""},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "\"hidden_act\" is \"gelu\""},
      {"\"hidden_size\": ", "\"hidden_size\": 9000000000000, \"x\": ", "\"hidden_size\" is 9000000000000"},
      {"\"hidden_size\": ", "\"hidden_size\": \"x\", \"x\": ", "\"hidden_size\" is \"x\""},
      {"\"num_hidden_layers\": ", "\"num_hidden_layers\": -2, \"x\": ", "\"num_hidden_layers\" is -2"},
      {"\"num_hidden_layers\": ", "\"num_hidden_layers\": 2000000000, \"x\": ", "\"num_hidden_layers\" is 2000000000"},
      {"\"num_key_value_heads\": ", "\"num_key_value_heads\": 3, \"x\": ", "\"num_key_value_heads\" 3"},
      {"\"vocab_size\": ", "\"vocab_size\": 0, \"x\": ", "\"vocab_size\" is 0"},
  };
  int count = 0;
  for (const auto& [from, to, says] : changes) {
    const std::string name = "changed" + std::to_string(count++);
    make_model(name);
    rewrite(name + "/config.json", from, to);
    expect_model_refused(name, {name + "/config.json", says});
  }
}

TEST_F(BadFiles, Weights) {
  const std::string whole = read_whole(golden + "llama-tied/model.safetensors");
  const auto model = [&](const std::string& name, const std::string& weights) {
    make_model(name);
    write_whole(folder_ / (name + "/model.safetensors"), weights);
  };
  make_model("none");
  fs::remove(folder_ / "none/model.safetensors");
  expect_model_refused("none", {"no weights", "--from-scratch"}, 2);
  model("empty", "");
  model("short", whole.substr(0, 5));
  model("header", whole.substr(0, 1000));
  model("data", whole.substr(0, whole.size() - 1));
  model("huge", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + whole.substr(8));
  model("noise", std::string(5000, '\xa5'));
  for (const char* name : {"empty", "short", "header", "data", "huge", "noise"}) {
    expect_model_refused(name, {std::string(name) + "/model.safetensors"});
  }
  std::string damaged = whole;
  damaged[20] = '\x01';  // in the header's JSON
  model("damaged", damaged);
  expect_model_refused("damaged", {"damaged/model.safetensors"});

  model("other", read_whole(golden + "qwen3-tied/model.safetensors"));
  expect_model_refused("other", {"other/model.safetensors", "has the shape"});
  make_model("index");
  fs::remove(folder_ / "index/model.safetensors");
  write_whole(folder_ / "index/model.safetensors.index.json",
              R"({"weight_map": {"model.norm.weight": "../none/model.safetensors"}})");
  expect_model_refused("index", {"no plain file name"});
  write_whole(folder_ / "index/model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": "gone.safetensors"}})");
  expect_model_refused("index", {"gone.safetensors"});
  write_whole(folder_ / "index/model.safetensors.index.json", "{");
  expect_model_refused("index", {"model.safetensors.index.json"});
}

TEST_F(BadFiles, TextAndTokenizers) {
  write_whole(folder_ / "empty.txt", "");
  write_whole(folder_ / "short.txt", "hello");
  write_whole(folder_ / "latin1.txt", "caf\xe9 au lait\n");
  fs::create_directory(folder_ / "nothing");
  const std::string tokenizer = read_whole(CONSIST_SOURCE_DIR "/datasets/text/tokenizer.json");
  write_whole(folder_ / "cut.json", tokenizer.substr(0, tokenizer.size() / 2));
  write_whole(folder_ / "brace.json", "{}");
  write_whole(folder_ / "piece.json", R"({"version":"1.0","model":{"type":"WordPiece","vocab":{},"merges":[]}})");
  std::string unknown = tokenizer;
  unknown.replace(unknown.find("ByteLevel"), 9, "Mystery42");
  write_whole(folder_ / "unknown.json", unknown);
  const std::string files = on_text + " --text.files ", other = on_text + " --text.tokenizer ";
  expect_refused({
      {files + "gone.txt", 2, {"--text.files", "gone.txt"}},
      {files + "empty.txt", 1, {"empty.txt", "0 tokens"}},
      {files + "short.txt", 1, {"short.txt", "tokens"}},
      {files + "nothing", 2, {"nothing has no files"}},
      {files + "latin1.txt", 1, {"latin1.txt is not valid UTF-8 at byte 3"}},
      {files + "latin1.txt --ranks 3", 1, {"latin1.txt is not valid UTF-8 at byte 3"}},
      {other + "gone.json", 1, {"gone.json"}},
      {other + "nothing", 2, {"nothing", "a folder without a tokenizer.json"}},
      {other + "empty.txt", 1, {"empty.txt", "it is no valid JSON: parse error at line"}},
      {other + "cut.json", 1, {"cut.json", "it is no valid JSON: parse error at line"}},
      {other + "cut.json --ranks 3", 1, {"cut.json", "it is no valid JSON: parse error at line"}},
      {other + "brace.json", 1, {"brace.json", "missing"}},
      {other + "piece.json", 1, {"piece.json"}},
      {other + "unknown.json", 1, {"unknown.json", "Mystery42"}},
      {"tokenize --output x.tokens gone.txt", 2, {"gone.txt"}},
      {"tokenize --output x.tokens empty.txt", 1, {"empty"}},
      {"tokenize --output x.tokens latin1.txt", 1, {"latin1.txt is not valid UTF-8"}},
      {"tokenize --output x.tokens --tokenizer cut.json short.txt", 1, {"cut.json"}},
      {"tokenize --output nowhere/x.tokens short.txt", 2, {"nowhere/x.tokens"}},
      {"tokenize --output short.txt short.txt", 2, {"short.txt exists"}},
  });
}

TEST_F(BadFiles, Tokens) {
  write_whole(folder_ / "notes.txt", std::string(3000, 'a') + " words and more words");
  ASSERT_EQ(
      test::run_child({CONSIST_BINARY_DIR "/bin/consist", "tokenize", "--output", folder_ / "good.tokens", folder_ / "notes.txt"})
          .status,
      0);
  const std::string good = read_whole(folder_ / "good.tokens");
  write_whole(folder_ / "empty.tokens", "");
  write_whole(folder_ / "cut.tokens", good.substr(0, good.size() - 1));
  write_whole(folder_ / "header.tokens", good.substr(0, 40));
  write_whole(folder_ / "noise.tokens", std::string(1000, '\x5a'));
  write_whole(folder_ / "odd.bin", std::string(1001, '\0'));
  const std::string files = on_text + " --dataset tokens --tokens.files ";
  expect_refused({
      {on_text + " --dataset tokens", 2, {"--tokens.files is missing"}},
      {files + "gone.tokens", 2, {"gone.tokens"}},
      {files + "empty.tokens", 1, {"empty.tokens"}},
      {files + "header.tokens", 1, {"header.tokens"}},
      {files + "cut.tokens", 1, {"cut.tokens"}},
      {files + "cut.tokens --ranks 3", 1, {"cut.tokens"}},
      {files + "noise.tokens", 1, {"noise.tokens", "CONSTOK"}},
      {files + "odd.bin --tokens.format u16", 1, {"odd.bin"}},
  });
  // The meaning of a bare file's ids shows when they are read.
  write_whole(folder_ / "beyond.bin", std::string(1000, '\xff'));
  const test::ChildResult beyond =
      test::run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--model=llama-tiny", "--sequence=16",
                       "--batch=1", "--dataset=tokens", "--tokens.format=u16", "--tokens.files=" + (folder_ / "beyond.bin")});
  EXPECT_EQ(beyond.status, 1) << beyond.output;
  EXPECT_THAT(beyond.output, ::testing::HasSubstr("is 65535, but the model's vocabulary has 4096"));
}

TEST_F(BadFiles, PlacesThatCannotBeWritten) {
  write_whole(folder_ / "notes.txt", "not an archive");
  fs::create_directory(folder_ / "folder");
  const std::string train = "train --device cpu --dataset synthetic --sequence 16 --batch 1 --steps 1 --model %G/qwen3-tied";
  for (const std::string ranks : {"", " --ranks 3"}) {
    expect_refused({
        {train + ranks + " --archive folder", 2, {"folder is a folder"}},
        {train + ranks + " --archive folder --overwrite", 2, {"folder is a folder"}},
        {train + ranks + " --archive nowhere/a.h5", 1, {"nowhere/a.h5", "No such file or directory"}},
        {train + ranks + " --archive notes.txt", 2, {"notes.txt exists already", "--overwrite"}},
        {train + ranks + " --archive /dev/full --overwrite", 2, {"/dev/full is no regular file"}},
        {train + ranks + " --checkpoint notes.txt", 1, {"notes.txt", "Not a directory"}},
        {train + ranks + " --checkpoint notes.txt/x", 1, {"notes.txt/x"}},
        {train + ranks + " --export notes.txt", 2, {"notes.txt is a file"}},
        {train + ranks + " --export /proc/x", 1, {"/proc/x"}},
    });
  }
}

}  // namespace
}  // namespace consist
