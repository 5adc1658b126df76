// A config.ini without entries, in place of FasterTransformer's reader.
#pragma once

#include <string>

struct INIReader {
    explicit INIReader(const std::string&) {}
    template<typename T> T GetInteger(const std::string&, const std::string&, T otherwise) const { return otherwise; }
    bool GetBoolean(const std::string&, const std::string&, bool otherwise) const { return otherwise; }
    std::string Get(const std::string&, const std::string&, const std::string& otherwise) const { return otherwise; }
};
