#include "engine/config/json_text.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/engine/data/temp_folder.h"

namespace marea {
namespace {

std::string ErrorOf(const std::string& text) {
  const Result<nlohmann::json> parsed = ParseJsonText(text, "ds.json");
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.status().code(), ErrorCode::kInvalidArgument);
  return parsed.status().message();
}

TEST(JsonText, ErrorsNameFileLineAndColumn) {
  // text, what the message must hold
  const std::pair<std::string, std::string> cases[] = {
      {"{\"a\": 1,}", "ds.json, line 1, column 9: not valid JSON: "},
      {"{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column "},
      {"{\"a\": // no comments\n 1}", "line 1, column 7"},
      {"{\"a\": 'x'}", "line 1, column 7"},
      {"{\"a\": NaN}", "line 1, column 7"},
      {"{\"a\": 1} x", "line 1, column 10"},
      {"{\"a\": 1", "line 1, column 8"},
      {"[1, 2", "line 1, column "},
      {"{\"a\": \"\x01\"}", "line 1, column "},
      {"{\"a\": \"\xff\"}", "line 1, column "},
      {"{\"a\": 1e999}", "number"},
      {"{\"a\": 01}", "line 1, column 8"},
      {"", "empty"},
      {" \n\t", "empty"},
  };
  for (const auto& [text, needed] : cases) {
    const std::string message = ErrorOf(text);
    EXPECT_NE(message.find(needed), std::string::npos) << text << " -> " << message;
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
    EXPECT_EQ(message.rfind("ds.json", 0), 0u) << message;
  }
}

TEST(JsonText, DuplicateKeysAreRefusedWithTheirPath) {
  EXPECT_NE(ErrorOf(R"({"a": 1, "a": 1})").find("\"a\" appears twice"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"a": {"b": [{"c": 1, "c": 2}]}})").find("\"a.b.c\" appears twice"),
            std::string::npos);
  // The same key in different objects is fine.
  EXPECT_EQ(ErrorOf(R"({"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]})"), "accepted");
}

TEST(JsonText, DeepNestingIsNoCrash) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(ErrorOf(deep), "accepted");
  EXPECT_NE(ErrorOf(std::string(200000, '[')).find("line 1"), std::string::npos);
}

TEST(JsonText, LongQuotedTextIsCutShort) {
  EXPECT_LT(ErrorOf("{\"a\": \"" + std::string(100000, 'x')).size(), 400u);
}

TEST(ReadSmallFile, RefusesWhatIsNoSmallFile) {
  const TempFolder folder;
  const std::string file = folder.Write("a.json", "{}\n");
  EXPECT_EQ(ReadSmallFile(file, 3).value(), "{}\n");
  const Result<std::string> large = ReadSmallFile(file, 2);
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.status().message().find(file), std::string::npos);
  EXPECT_EQ(ReadSmallFile(folder.path() + "/none", 100).status().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_NE(ReadSmallFile(folder.path(), 100).status().message().find("is not a file"),
            std::string::npos);
  const std::string pipe = folder.path() + "/pipe";  // must not hang
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(ReadSmallFile(pipe, 100).ok());
}

}  // namespace
}  // namespace marea
