// Made by make_unicode_classes.py: what Unicode 16 adds to the general categories of Unicode 14, as ranges for a set of PCRE2.
#pragma once

#include <string_view>

namespace consist::tokenizer {

struct UnicodeClass {
  std::string_view name;
  std::string_view newer;  ///< what came since Unicode 14
  std::string_view whole;  ///< not empty where characters left the category since: all of it
};

inline constexpr UnicodeClass unicode_classes[] = {
    {"Lu", R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})",
     ""},
    {"Ll", R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})",
     ""},
    {"Lt", "",
     ""},
    {"Lm", R"(\x{10d4e}\x{10d6f}\x{16d40}-\x{16d42}\x{16d6b}-\x{16d6c}\x{1e030}-\x{1e06d}\x{1e4eb})",
     ""},
    {"Lo", R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4d}\x{10d4f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389})"
     R"(\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02})"
     R"(\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
     R"(\x{16d43}-\x{16d6a}\x{18cff}\x{1b132}\x{1b155}\x{1e4d0}-\x{1e4ea}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739})"
     R"(\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})",
     ""},
    {"Mn", R"(\x{897}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113bb}-\x{113c0}\x{113ce}\x{113d0})"
     R"(\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f36}-\x{11f3a}\x{11f40}\x{11f42}\x{11f5a}\x{13440})"
     R"(\x{13447}-\x{13455}\x{1611e}-\x{16129}\x{1612d}-\x{1612f}\x{1e08f}\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})",
     R"(\x{300}-\x{36f}\x{483}-\x{487}\x{591}-\x{5bd}\x{5bf}\x{5c1}-\x{5c2}\x{5c4}-\x{5c5}\x{5c7}\x{610}-\x{61a})"
     R"(\x{64b}-\x{65f}\x{670}\x{6d6}-\x{6dc}\x{6df}-\x{6e4}\x{6e7}-\x{6e8}\x{6ea}-\x{6ed}\x{711}\x{730}-\x{74a})"
     R"(\x{7a6}-\x{7b0}\x{7eb}-\x{7f3}\x{7fd}\x{816}-\x{819}\x{81b}-\x{823}\x{825}-\x{827}\x{829}-\x{82d})"
     R"(\x{859}-\x{85b}\x{897}-\x{89f}\x{8ca}-\x{8e1}\x{8e3}-\x{902}\x{93a}\x{93c}\x{941}-\x{948}\x{94d})"
     R"(\x{951}-\x{957}\x{962}-\x{963}\x{981}\x{9bc}\x{9c1}-\x{9c4}\x{9cd}\x{9e2}-\x{9e3}\x{9fe}\x{a01}-\x{a02})"
     R"(\x{a3c}\x{a41}-\x{a42}\x{a47}-\x{a48}\x{a4b}-\x{a4d}\x{a51}\x{a70}-\x{a71}\x{a75}\x{a81}-\x{a82}\x{abc})"
     R"(\x{ac1}-\x{ac5}\x{ac7}-\x{ac8}\x{acd}\x{ae2}-\x{ae3}\x{afa}-\x{aff}\x{b01}\x{b3c}\x{b3f}\x{b41}-\x{b44})"
     R"(\x{b4d}\x{b55}-\x{b56}\x{b62}-\x{b63}\x{b82}\x{bc0}\x{bcd}\x{c00}\x{c04}\x{c3c}\x{c3e}-\x{c40})"
     R"(\x{c46}-\x{c48}\x{c4a}-\x{c4d}\x{c55}-\x{c56}\x{c62}-\x{c63}\x{c81}\x{cbc}\x{cbf}\x{cc6}\x{ccc}-\x{ccd})"
     R"(\x{ce2}-\x{ce3}\x{d00}-\x{d01}\x{d3b}-\x{d3c}\x{d41}-\x{d44}\x{d4d}\x{d62}-\x{d63}\x{d81}\x{dca})"
     R"(\x{dd2}-\x{dd4}\x{dd6}\x{e31}\x{e34}-\x{e3a}\x{e47}-\x{e4e}\x{eb1}\x{eb4}-\x{ebc}\x{ec8}-\x{ece})"
     R"(\x{f18}-\x{f19}\x{f35}\x{f37}\x{f39}\x{f71}-\x{f7e}\x{f80}-\x{f84}\x{f86}-\x{f87}\x{f8d}-\x{f97})"
     R"(\x{f99}-\x{fbc}\x{fc6}\x{102d}-\x{1030}\x{1032}-\x{1037}\x{1039}-\x{103a}\x{103d}-\x{103e})"
     R"(\x{1058}-\x{1059}\x{105e}-\x{1060}\x{1071}-\x{1074}\x{1082}\x{1085}-\x{1086}\x{108d}\x{109d})"
     R"(\x{135d}-\x{135f}\x{1712}-\x{1714}\x{1732}-\x{1733}\x{1752}-\x{1753}\x{1772}-\x{1773}\x{17b4}-\x{17b5})"
     R"(\x{17b7}-\x{17bd}\x{17c6}\x{17c9}-\x{17d3}\x{17dd}\x{180b}-\x{180d}\x{180f}\x{1885}-\x{1886}\x{18a9})"
     R"(\x{1920}-\x{1922}\x{1927}-\x{1928}\x{1932}\x{1939}-\x{193b}\x{1a17}-\x{1a18}\x{1a1b}\x{1a56})"
     R"(\x{1a58}-\x{1a5e}\x{1a60}\x{1a62}\x{1a65}-\x{1a6c}\x{1a73}-\x{1a7c}\x{1a7f}\x{1ab0}-\x{1abd})"
     R"(\x{1abf}-\x{1ace}\x{1b00}-\x{1b03}\x{1b34}\x{1b36}-\x{1b3a}\x{1b3c}\x{1b42}\x{1b6b}-\x{1b73})"
     R"(\x{1b80}-\x{1b81}\x{1ba2}-\x{1ba5}\x{1ba8}-\x{1ba9}\x{1bab}-\x{1bad}\x{1be6}\x{1be8}-\x{1be9}\x{1bed})"
     R"(\x{1bef}-\x{1bf1}\x{1c2c}-\x{1c33}\x{1c36}-\x{1c37}\x{1cd0}-\x{1cd2}\x{1cd4}-\x{1ce0}\x{1ce2}-\x{1ce8})"
     R"(\x{1ced}\x{1cf4}\x{1cf8}-\x{1cf9}\x{1dc0}-\x{1dff}\x{20d0}-\x{20dc}\x{20e1}\x{20e5}-\x{20f0})"
     R"(\x{2cef}-\x{2cf1}\x{2d7f}\x{2de0}-\x{2dff}\x{302a}-\x{302d}\x{3099}-\x{309a}\x{a66f}\x{a674}-\x{a67d})"
     R"(\x{a69e}-\x{a69f}\x{a6f0}-\x{a6f1}\x{a802}\x{a806}\x{a80b}\x{a825}-\x{a826}\x{a82c}\x{a8c4}-\x{a8c5})"
     R"(\x{a8e0}-\x{a8f1}\x{a8ff}\x{a926}-\x{a92d}\x{a947}-\x{a951}\x{a980}-\x{a982}\x{a9b3}\x{a9b6}-\x{a9b9})"
     R"(\x{a9bc}-\x{a9bd}\x{a9e5}\x{aa29}-\x{aa2e}\x{aa31}-\x{aa32}\x{aa35}-\x{aa36}\x{aa43}\x{aa4c}\x{aa7c})"
     R"(\x{aab0}\x{aab2}-\x{aab4}\x{aab7}-\x{aab8}\x{aabe}-\x{aabf}\x{aac1}\x{aaec}-\x{aaed}\x{aaf6}\x{abe5})"
     R"(\x{abe8}\x{abed}\x{fb1e}\x{fe00}-\x{fe0f}\x{fe20}-\x{fe2f}\x{101fd}\x{102e0}\x{10376}-\x{1037a})"
     R"(\x{10a01}-\x{10a03}\x{10a05}-\x{10a06}\x{10a0c}-\x{10a0f}\x{10a38}-\x{10a3a}\x{10a3f}\x{10ae5}-\x{10ae6})"
     R"(\x{10d24}-\x{10d27}\x{10d69}-\x{10d6d}\x{10eab}-\x{10eac}\x{10efc}-\x{10eff}\x{10f46}-\x{10f50})"
     R"(\x{10f82}-\x{10f85}\x{11001}\x{11038}-\x{11046}\x{11070}\x{11073}-\x{11074}\x{1107f}-\x{11081})"
     R"(\x{110b3}-\x{110b6}\x{110b9}-\x{110ba}\x{110c2}\x{11100}-\x{11102}\x{11127}-\x{1112b}\x{1112d}-\x{11134})"
     R"(\x{11173}\x{11180}-\x{11181}\x{111b6}-\x{111be}\x{111c9}-\x{111cc}\x{111cf}\x{1122f}-\x{11231}\x{11234})"
     R"(\x{11236}-\x{11237}\x{1123e}\x{11241}\x{112df}\x{112e3}-\x{112ea}\x{11300}-\x{11301}\x{1133b}-\x{1133c})"
     R"(\x{11340}\x{11366}-\x{1136c}\x{11370}-\x{11374}\x{113bb}-\x{113c0}\x{113ce}\x{113d0}\x{113d2})"
     R"(\x{113e1}-\x{113e2}\x{11438}-\x{1143f}\x{11442}-\x{11444}\x{11446}\x{1145e}\x{114b3}-\x{114b8}\x{114ba})"
     R"(\x{114bf}-\x{114c0}\x{114c2}-\x{114c3}\x{115b2}-\x{115b5}\x{115bc}-\x{115bd}\x{115bf}-\x{115c0})"
     R"(\x{115dc}-\x{115dd}\x{11633}-\x{1163a}\x{1163d}\x{1163f}-\x{11640}\x{116ab}\x{116ad}\x{116b0}-\x{116b5})"
     R"(\x{116b7}\x{1171d}\x{1171f}\x{11722}-\x{11725}\x{11727}-\x{1172b}\x{1182f}-\x{11837}\x{11839}-\x{1183a})"
     R"(\x{1193b}-\x{1193c}\x{1193e}\x{11943}\x{119d4}-\x{119d7}\x{119da}-\x{119db}\x{119e0}\x{11a01}-\x{11a0a})"
     R"(\x{11a33}-\x{11a38}\x{11a3b}-\x{11a3e}\x{11a47}\x{11a51}-\x{11a56}\x{11a59}-\x{11a5b}\x{11a8a}-\x{11a96})"
     R"(\x{11a98}-\x{11a99}\x{11c30}-\x{11c36}\x{11c38}-\x{11c3d}\x{11c3f}\x{11c92}-\x{11ca7}\x{11caa}-\x{11cb0})"
     R"(\x{11cb2}-\x{11cb3}\x{11cb5}-\x{11cb6}\x{11d31}-\x{11d36}\x{11d3a}\x{11d3c}-\x{11d3d}\x{11d3f}-\x{11d45})"
     R"(\x{11d47}\x{11d90}-\x{11d91}\x{11d95}\x{11d97}\x{11ef3}-\x{11ef4}\x{11f00}-\x{11f01}\x{11f36}-\x{11f3a})"
     R"(\x{11f40}\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{16129}\x{1612d}-\x{1612f})"
     R"(\x{16af0}-\x{16af4}\x{16b30}-\x{16b36}\x{16f4f}\x{16f8f}-\x{16f92}\x{16fe4}\x{1bc9d}-\x{1bc9e})"
     R"(\x{1cf00}-\x{1cf2d}\x{1cf30}-\x{1cf46}\x{1d167}-\x{1d169}\x{1d17b}-\x{1d182}\x{1d185}-\x{1d18b})"
     R"(\x{1d1aa}-\x{1d1ad}\x{1d242}-\x{1d244}\x{1da00}-\x{1da36}\x{1da3b}-\x{1da6c}\x{1da75}\x{1da84})"
     R"(\x{1da9b}-\x{1da9f}\x{1daa1}-\x{1daaf}\x{1e000}-\x{1e006}\x{1e008}-\x{1e018}\x{1e01b}-\x{1e021})"
     R"(\x{1e023}-\x{1e024}\x{1e026}-\x{1e02a}\x{1e08f}\x{1e130}-\x{1e136}\x{1e2ae}\x{1e2ec}-\x{1e2ef})"
     R"(\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef}\x{1e8d0}-\x{1e8d6}\x{1e944}-\x{1e94a}\x{e0100}-\x{e01ef})"},
    {"Mc", R"(\x{cf3}\x{113b8}-\x{113ba}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113cd}\x{113cf}\x{1171e})"
     R"(\x{11f03}\x{11f34}-\x{11f35}\x{11f3e}-\x{11f3f}\x{11f41}\x{1612a}-\x{1612c})",
     ""},
    {"Me", "",
     ""},
    {"Nd", R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
     R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})",
     ""},
    {"Nl", "",
     ""},
    {"No", R"(\x{1d2c0}-\x{1d2d3})",
     ""},
    {"Pc", "",
     ""},
    {"Pd", R"(\x{10d6e})",
     ""},
    {"Ps", "",
     ""},
    {"Pe", "",
     ""},
    {"Pi", "",
     ""},
    {"Pf", "",
     ""},
    {"Po", R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1})"
     R"(\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})",
     ""},
    {"Sm", R"(\x{10d8e}-\x{10d8f})",
     ""},
    {"Sc", "",
     ""},
    {"Sk", "",
     ""},
    {"So", R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{1cc00}-\x{1ccef}\x{1cd00}-\x{1ceb3})"
     R"(\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb}\x{1f8c0}-\x{1f8c1})"
     R"(\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6})"
     R"(\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8}\x{1fbcb}-\x{1fbef})",
     ""},
    {"Zs", "",
     ""},
    {"Zl", "",
     ""},
    {"Zp", "",
     ""},
    {"L", R"(\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
     R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
     R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
     R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c})"
     R"(\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed})"
     R"(\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})",
     ""},
    {"M", R"(\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113b8}-\x{113c0}\x{113c2}\x{113c5})"
     R"(\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f03})"
     R"(\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f}\x{1e08f})"
     R"(\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})",
     ""},
    {"N", R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
     R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})",
     ""},
    {"P", R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{10d6e}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1})"
     R"(\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})",
     ""},
    {"S", R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{10d8e}-\x{10d8f}\x{1cc00}-\x{1ccef})"
     R"(\x{1cd00}-\x{1ceb3}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb})"
     R"(\x{1f8c0}-\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf})"
     R"(\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8})"
     R"(\x{1fbcb}-\x{1fbef})",
     ""},
    {"Z", "",
     ""},
};

}  // namespace consist::tokenizer
