#pragma once

#define FT_VERSION "5.3"
