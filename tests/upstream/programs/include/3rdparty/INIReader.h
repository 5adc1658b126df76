// A config.ini without entries but SECTION.KEY=VALUE in the environment variable INI, in place of FasterTransformer's.
#pragma once

#include <cstdlib>
#include <string>

struct INIReader {
    explicit INIReader(const std::string&) {}
    template<typename T> T GetInteger(const std::string&, const std::string&, T otherwise) const { return otherwise; }
    bool GetBoolean(const std::string&, const std::string&, bool otherwise) const { return otherwise; }
    std::string Get(const std::string& section, const std::string& key, const std::string& otherwise) const
    {
        const char* written = std::getenv("INI");
        const std::string entry = written ? written : "", name = section + "." + key + "=";
        return entry.compare(0, name.size(), name) == 0 ? entry.substr(name.size()) : otherwise;
    }
};
