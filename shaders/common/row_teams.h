// The teams of kernels that multiply one matrix with one vector. A launch chooses them by the shape: many where rows are
// short, so that every lane has a span, and one where there are few rows, so that more threadgroups share them.
#pragma once

#include "rows.h"

constant uint row_teams [[function_constant(5)]];  // of a threadgroup; kRowTeams if undefined

constant uint kTeams = is_function_constant_defined(row_teams) ? row_teams : kRowTeams;
constant uint kTeamRows = kRows * kTeams;  // rows of a threadgroup
constexpr constant uint kMostTeams = 16;
constant bool valid_teams = kTeams > 0 && kMostTeams % kTeams == 0;
constexpr constant uint kTeamPartials = kRows * kMostTeams;  // floats that a threadgroup shares
