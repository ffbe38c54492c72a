// The interpreter of Jinja: what jinja2 writes (tests/golden/make_jinja_references.py), within limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "consist/files.h"
#include "datasets/jinja/template.h"

namespace consist::jinja {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using Variables = std::vector<std::pair<std::string, Value>>;

constexpr std::tm day{.tm_sec = 0,
                      .tm_min = 0,
                      .tm_hour = 0,
                      .tm_mday = 26,
                      .tm_mon = 6,
                      .tm_year = 124,
                      .tm_wday = 5,
                      .tm_yday = 207,
                      .tm_isdst = 0,
                      .tm_gmtoff = 0,
                      .tm_zone = nullptr};

std::string written(const std::string& program, const Variables& variables = {}, RenderLimits limits = {}) {
  return Template(program).render(variables, limits, day).text.bytes;
}

std::string refused(const std::string& program, const Variables& variables = {}, RenderLimits limits = {}) {
  try {
    return "accepted: " + written(program, variables, limits).substr(0, 200);
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(Jinja, WritesWhatJinja2Writes) {
  const Json golden = Json::parse(read_text(CONSIST_SOURCE_DIR "/tests/golden/jinja.json", 1 << 22));
  ASSERT_GT(golden["snippets"].size(), 60U);
  for (const Json& snippet : golden["snippets"]) {
    const std::string program = snippet[0];
    SCOPED_TRACE(program);
    const Variables variables{{"messages", from_json(golden["messages"])}};
    if (snippet[1].is_null()) {
      EXPECT_THROW(written(program, variables), DataError);
    } else {
      EXPECT_EQ(written(program, variables), snippet[1].get<std::string>());
    }
  }
}

TEST(Jinja, MistakesAreNamedWithTheirLine) {
  EXPECT_EQ(refused("a\n{{ b.c }}"), "line 2: \"b\" is undefined");
  EXPECT_EQ(refused("{% if true %}\n\n{{ 1 + 'a' }}{% endif %}"), "line 3: + is given an integer and a text");
  EXPECT_EQ(refused("\n\n{{ 'a"), "line 3: a text is not closed");
  EXPECT_EQ(refused("{{ 1 | unheard }}"), "line 1: there is no filter \"unheard\" here");
  EXPECT_EQ(refused("{{ 1 is unheard }}"), "line 1: there is no test \"unheard\" here");
  EXPECT_EQ(refused("{% include 'x' %}"), "line 1: {% include %} is not supported");
  EXPECT_EQ(refused("{% for a in [1] %}"), "line 1: {% endfor %} is missing");
  EXPECT_EQ(refused("{{ raise_exception('not so') }}"), "not so");
  EXPECT_THROW(written("{{ raise_exception('not so') }}"), Refusal);
}

TEST(Jinja, ReachesNothingButValues) {
  for (const char* program :
       {"{{ ''.__class__.__mro__ }}", "{{ messages.__init__.__globals__ }}", "{{ self._TemplateReference__context }}",
        "{{ range.__globals__['os'] }}", "{{ ''['__class__']['__bases__'] }}", "{{ messages.append(1) }}", "{{ [].pop() }}",
        "{{ {}.update({'a': 1}) }}", "{{ lipsum() }}", "{{ open('/etc/passwd') }}"})
    EXPECT_THAT(refused(program, {{"messages", Value::list({})}}), HasSubstr("is undefined")) << program;
}

TEST(Jinja, HostileProgramsEndSoonAndSmall) {
  RenderLimits limits;
  limits.steps = 100'000;
  limits.bytes = 1 << 20;
  const auto in = [&](const std::string& program) { return refused(program, {}, limits); };
  EXPECT_THAT(in("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
              HasSubstr("it does more than"));
  EXPECT_THAT(in("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("call each other, or"));
  EXPECT_THAT(in("{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}"), HasSubstr("call each other, or"));
  EXPECT_THAT(in("{{ range(1000000000) }}"), ::testing::AnyOf(HasSubstr("range has more than"), HasSubstr("it does more than")));
  EXPECT_THAT(in("{{ 'x' * 1000000000 }}"), ::testing::AnyOf(HasSubstr("it writes more than"), HasSubstr("it does more than")));
  EXPECT_THAT(in("{{ [0] * 1000000000 }}"), HasSubstr("it does more than"));
  EXPECT_THAT(in("{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}"),
              HasSubstr("it writes more than"));
  EXPECT_THAT(in("{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
              HasSubstr("it writes more than"));
  EXPECT_THAT(
      in("{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s.replace('x', 'xx') %}{% endfor %}"),
      HasSubstr("than"));
  EXPECT_THAT(in("{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = [n.s, n.s] | tojson %}{% endfor %}"),
              HasSubstr("than"));
  EXPECT_THAT(in("{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(
      in("{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = [n.s, n.s] | join(n.s) %}{% endfor %}"),
      HasSubstr("than"));
  EXPECT_THAT(in("{{ 9223372036854775807 + 1 }}"), HasSubstr("number"));
  EXPECT_THAT(in("{{ 2 ** 64 }}{{ 1 }}"), HasSubstr("more than 64 bits"));
  EXPECT_THAT(in("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}"), HasSubstr("nested more than"));
  EXPECT_THAT(in("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("nested more than"));
  std::string blocks;
  for (int i = 0; i < 500; ++i) blocks += "{% if true %}";
  EXPECT_THAT(in(blocks), HasSubstr("nested more than"));
  EXPECT_THAT(in(std::string(most_program_bytes + 1, 'x')), HasSubstr("are not read"));
}

TEST(Jinja, DeepChainsAreRefusedNotFollowed) {
  std::string sums = "1", filters = "x", members = "x";
  for (int i = 0; i < 150000; ++i) sums += "+1";
  for (int i = 0; i < 60000; ++i) filters += "|trim";
  for (int i = 0; i < 60000; ++i) members += ".y";
  for (const std::string& chain : {sums, filters, members})
    EXPECT_THAT(refused("{{ " + chain + " }}"), HasSubstr("line 1: ")) << chain.substr(0, 20);
}

TEST(Jinja, TextsKnowWhichMessageWroteThem) {
  const auto marks = [](const std::string& program, const std::string& content) {
    std::string shown;
    for (const Mark& mark : Template(program).render({{"a", Value::text(content, 7)}}, {}).text.marks)
      shown += std::to_string(mark.begin) + "-" + std::to_string(mark.end) + ":" + std::to_string(mark.origin) + " ";
    return shown;
  };
  EXPECT_EQ(marks("<{{ a }}>", "words"), "1-6:7 ");
  EXPECT_EQ(marks("<{{ '(' + a + ')' }}>", "words"), "2-7:7 ");
  EXPECT_EQ(marks("{{ a | trim }}", "  words "), "0-5:7 ");
  EXPECT_EQ(marks("{{ a.split('|')[1] }}", "one|two"), "0-3:7 ");
  EXPECT_EQ(marks("{{ a[1:3] }}{{ a | upper }}", "words"), "0-2:7 2-7:7 ");
  EXPECT_EQ(marks("{{ {'k': a} | tojson }}", "words"), "0-14:7 ");
  EXPECT_EQ(marks("<{{ a }}>", ""), "1-1:7 ");
  EXPECT_EQ(marks("<{{ a.strip() + '.' }}>", " \n"), "1-1:7 ");
  EXPECT_EQ(marks("{{ a | length }}", "words"), "");
}

TEST(Jinja, GenerationIsMarked) {
  const Template marked("{{ 'ask ' }}{% generation %}{{ 'äöü' }}{% endgeneration %}.");
  EXPECT_TRUE(marked.marks_generation());
  const auto generated = marked.render({}, {}).generated;
  ASSERT_EQ(generated.size(), 1U);
  EXPECT_EQ(generated[0], (std::pair<std::size_t, std::size_t>{4, 10}));
  EXPECT_FALSE(Template("{{ 1 }}").marks_generation());
}

}  // namespace
}  // namespace consist::jinja
