// SPDX-License-Identifier: MIT OR Apache-2.0
// A script that sorts, substitutes, fails in calls that are protected (longjmp), and has coroutines.
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>
#include <stdlib.h>

static const char script[] =
    "local times = ...\n"
    "local t, sum = {}, 0\n"
    "for i = 1, times do t[i] = i * 7919 % times end\n"
    "table.sort(t, function(a, b) return a < b end)\n"
    "local text = string.rep('some words ', times // 10)\n"
    "text = text:gsub('%w+', function(word) return word:upper() end)\n"
    "for i = 1, times do if not pcall(error, i) then sum = sum + 1 end end\n"
    "local yields = coroutine.wrap(function() for i = 1, times do coroutine.yield(i) end end)\n"
    "for i = 1, times do sum = sum + yields() end\n"
    "print(sum, #text, string.format('%5.2f', sum / 7))\n";

int main(int argc, char **argv) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    if (luaL_loadstring(lua, script)) return 1;
    lua_pushinteger(lua, argc > 1 ? atoi(argv[1]) : 20000);
    if (lua_pcall(lua, 1, 0, 0)) {
        fprintf(stderr, "%s\n", lua_tostring(lua, -1));
        return 1;
    }
    lua_close(lua);
    return 0;
}
