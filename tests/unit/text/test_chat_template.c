/* test_chat_template.c - the Jinja subset of chat templates.
 *
 * The wanted texts are those of the Python package jinja2 3.1.6 in the environment that
 * transformers 5.23.0 makes for chat templates, for the same templates and variables; from_json,
 * which engines add to it, is Python's json.loads there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/text/chat/chat_template.h"

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be brief. \"}, "
    "{\"role\": \"user\", \"content\": \"H\\u00e9llo \\ud83d\\ude00\"}, "
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {"
    "\"name\": \"f\", \"arguments\": {\"b\": 1, \"A\": [true, 1.5, \"x'y\"]}}}]}], "
    "\"bos_token\": \"<s>\", \"n\": 7, \"r\": [1.5e300, 0.00001, 123456789012345680.0], "
    "\"o\": {\"items\": 1, \"k\": \"v\"}}";

static const struct {
    const char *template, *want;
} same_as_jinja[] = {
    {"a{% if n %}b{% endif %}",
     "ab"},
    {"x\n  {% if n %}\n  y\n  {% endif %}\nz\n",
     "x\n  y\nz"},
    {"x\n  {%+ if n %}y{% endif +%}\nz",
     "x\n  y\nz"},
    {"x  {{- n -}}  \n z",
     "x7z"},
    {"a {# note #}\n b {#- note -#} c\n\n",
     "a  bc\n"},
    {"{% for m in messages %}{{ loop.index }}/{{ loop.length }}:{{ m.role }}{% if not loop.la"
     "st %},{% endif %}{% endfor %}",
     "1/3:system,2/3:user,3/3:assistant"},
    {"{% for m in messages if m.content is string %}{{ loop.index0 }}{{ m.content|trim }};{% "
     "else %}no{% endfor %}",
     "0Be brief.;1H\303\251llo \360\237\230\200;"},
    {"{% for x in [] %}{% else %}empty{% endfor %}",
     "empty"},
    {"{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
     "1231"},
    {"{% set ns = namespace(a=1) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% elif i"
     " == 1 %}{% continue %}{% endif %}{% set ns.a = ns.a * 10 + i %}{% endfor %}{{ ns.a }}",
     "102"},
    {"{% macro f(x, y='d') %}[{{ x }}{{ y }}{{ z }}]{% endmacro %}{% set z = 5 %}{{ f(1) }}{{"
     " f(y=2, x=3) }}{{ f() }}",
     "[1d5][325][d5]"},
    {"{% set t %} a{{ n }} {% endset %}{{ t|length }}{{ t.strip() }}",
     "4a7"},
    {"{{ messages[2].tool_calls[0].function.arguments }}|{{ messages[2].tool_calls[0].functio"
     "n.arguments|tojson }}|{{ messages[2].tool_calls[0].function.arguments|tojson(indent=2) "
     "}}",
     "{'b': 1, 'A': [True, 1.5, \"x'y\"]}|{\"b\": 1, \"A\": [true, 1.5, \"x'y\"]}|{\n  \"b\":"
     " 1,\n  \"A\": [\n    true,\n    1.5,\n    \"x'y\"\n  ]\n}"},
    {"{{ messages[2].tool_calls[0].function.arguments|dictsort }}",
     "[('A', [True, 1.5, \"x'y\"]), ('b', 1)]"},
    {"{% for k, v in o.items() %}{{ k }}={{ v }} {% endfor %}{% for k, v in o|items %}{{ k }}"
     "{% endfor %}{{ o['items'] }}",
     "items=1 k=v itemsk1"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 * 3 + 4 }} {{ 1 - 2 - 3 }} {{ "
     "0.1 + 0.2 }}",
     "3 -4 2 3.5 10 -4 0.30000000000000004"},
    {"{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 'b' in 'abc' }} {{ 'k' in o }} {{ 2 n"
     "ot in [1, 2] }} {{ not n is defined }}",
     "True True True True True False False"},
    {"{{ messages[1].content[1:3] }}{{ messages[1].content[::-1] }}{{ messages[-1].role }}{{ "
     "[1,2,3,4][::-2] }}{{ [1,2,3][5] is defined }}",
     "\303\251l\360\237\230\200 oll\303\251Hassistant[4, 2]False"},
    {"{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ '  x '.strip() ~ '|' ~ 'xxay'"
     ".lstrip('x') ~ '|' ~ 'ab\\n'.rstrip('\\n') }}",
     "['a', 'b', '', 'c'] ['a', 'b,,c'] x|ay|ab"},
    {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('ab') }} {{ 'aXbX'.replace('X', '--', 1)"
     " }} {{ 'aBc'.upper() }} {{ 'heLLO woRLD-x'|title }} {{ 'heLLO w'|capitalize }}",
     "True False a--bX ABC Hello World-X Hello w"},
    {"{{ none }} {{ missing }} {{ missing|default('d') }} {{ ''|default('e', true) }} {{ miss"
     "ing is none }} {{ missing is iterable }}",
     "None  d e False True"},
    {"{{ o.get('k') }} {{ o.get('z') }} {{ o.get('z', 3) }} {{ o.z }} {{ 'x' if o.z else 'y' "
     "}} {{ 'x' if false }}",
     "v None 3  y "},
    {"{{ messages|map(attribute='role')|join('-') }} {{ messages|selectattr('content','none')"
     "|list|length }} {{ messages|rejectattr('role','equalto','user')|map(attribute='role')|l"
     "ist }}",
     "system-user-assistant 1 ['system', 'assistant']"},
    {"{{ [3, 'a']|first }} {{ 'xyz'|last }} {{ [1,2]|reverse|list }} {{ ' 42 '|int + 1 }} {{ "
     "'z'|int(9) }} {{ 3.7|int }} {{ 5|string + '!' }}",
     "3 z [2, 1] 43 9 3 5!"},
    {"{{ strftime_now('%d %b %Y') }} {{ r }}{{ [1, 2.0, none, true, \"a'b\", '\303\251\\n', ("
     ")] }}",
     "26 Jul 2024 [1.5e+300, 1e-05, 1.2345678901234568e+17][1, 2.0, None, True, \"a'b\", '"
     "\303\251\\n', ()]"},
    {"{{ {'a': 1, '\303\251': [1, {}], 'c': []}|tojson(ensure_ascii=true, separators=(',', ':"
     "'), sort_keys=true) }}",
     "{\"a\":1,\"c\":[],\"\\u00e9\":[1,{}]}"},
    {"{% generation %}{{ bos_token }}{% endgeneration %}{{ (1, 2) }}{{ 'a' 'b' }}{{ \"\\u00e9"
     "\\x41\\t\\q\" }}",
     "<s>(1, 2)ab\303\251A\t\\q"},
    {"{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{{ loop.depth }}{% endfor"
     " %}{{ loop.revindex }}{{ loop.previtem }}{% endfor %}",
     "11212112110"},
    {"{{ '{%' }}{{ {'a': {'b': 1}}.a.b }}}}",
     "{%1}}"},
    {"{{ 4 is even }}{{ 4 is divisibleby 2 }}{{ 4 is odd }}{{ n is number and n is not string"
     " }}{{ o is mapping }}{{ none is not none }}",
     "TrueTrueFalseTrueTrueFalse"},
    {"{{ ['b','A','a','B','c']|sort }} {{ ['b','A','a','B','c']|sort(true) }} {{ ['b','A',"
     "'a','B']|sort(case_sensitive=true) }}",
     "['A', 'a', 'b', 'B', 'c'] ['c', 'b', 'B', 'A', 'a'] ['A', 'B', 'a', 'b']"},
    {"{{ [3, 1.5, true, -2, 1]|sort }} {{ [3, 1.5, true, -2, 1]|sort(reverse=true) }} {{ ["
     "'\303\211','e','Z','\303\251']|sort(case_sensitive=true)|join }} {{ 'hello'|sort|join }}",
     "[-2, True, 1, 1.5, 3] [3, 1.5, True, 1, -2] Ze\303\211\303\251 ehllo"},
    {"{{ messages|sort(attribute='role')|map(attribute='role')|join(',') }} {{ messages|so"
     "rt(true, attribute='role')|map(attribute='role')|join(',') }}",
     "assistant,system,user user,system,assistant"},
    {"{{ [{'a':2,'b':'x'},{'a':1,'b':'Y'},{'a':2,'b':'W'},{'a':1,'b':'y'}]|sort(attribute="
     "'a,b')|map(attribute='b')|join }}",
     "YyWx"},
    {"{{ o|sort }} {{ []|sort }} {{ missing|sort }} {{ [none]|sort }} {{ o.values()|list|l"
     "ength }} {{ {'b':1,'a':2}.items()|sort(attribute='0') if false else 'x' }}",
     "['items', 'k'] [] [] [None] 2 x"},
    {"{{ ['b','B','a','b','A']|unique|list }} {{ ['b','B','a','b','A']|unique(true)|list }"
     "} {{ [1, true, 1.0, 2, none, none, 'x']|unique|list }}",
     "['b', 'a'] ['b', 'B', 'a', 'A'] [1, 2, None, 'x']"},
    {"{{ (messages + messages)|unique(attribute='role')|map(attribute='role')|list }} {{ m"
     "essages|map(attribute='role')|unique|sort|join(';') }} {{ 'hello'|unique|join }} {{ "
     "o|unique|list }}",
     "['system', 'user', 'assistant'] assistant;system;user helo ['items', 'k']"},
    {"{{ messages|map(attribute='missing')|unique|list|length }} {% for x in [3,3,1]|uniqu"
     "e|sort %}{{ x }},{% endfor %}",
     "1 1,3,"},
    {"{{ '{\"a\": [1, 2.0, null, true], \"b\": {\"c\": \"d\\\\u00e9\"}}'|from_json }} {{ ("
     "'[3, 1]'|from_json)[1] + 1 }} {{ '\"t\"'|from_json ~ '|' ~ ' 12 '|from_json }}",
     "{'a': [1, 2.0, None, True], 'b': {'c': 'd\303\251'}} 2 t|12"},
    {"{% set a = '{\"z\": 1, \"y\": [\"p\"]}'|from_json %}{% for k, v in a|dictsort %}{{ k"
     " }}={{ v|tojson }};{% endfor %}{{ a.items()|list }}",
     "y=[\"p\"];z=1;[('z', 1), ('y', ['p'])]"},
};

static sw_code render(char **out, size_t *n, const char *text, const char *given, sw_err *err)
{
    const struct tm date = sw_chat_fixed_date();
    sw_chat_template *t = NULL;
    sw_code rc = sw_chat_template_open(&t, text, strlen(text), "T", err);

    if (rc == SW_OK)
        rc = sw_chat_template_render(out, n, t, given, strlen(given), &date, err);
    sw_chat_template_free(t);
    return rc;
}

static void renders_as_jinja_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same_as_jinja / sizeof *same_as_jinja; i++) {
        char *have = NULL;
        sw_err err = {0};
        size_t n = 0;
        if (render(&have, &n, same_as_jinja[i].template, variables, &err) != SW_OK)
            fail_msg("%s: %s", same_as_jinja[i].template, err.text);
        if (strcmp(have, same_as_jinja[i].want) != 0 || strlen(have) != n)
            fail_msg("%s\nhave %s\nwant %s", same_as_jinja[i].template, have,
                     same_as_jinja[i].want);
        sw_mem_put(have);
    }
}

/* What is refused, with its code and a part of the message. */
static const struct {
    sw_code code;
    const char *template, *says;
} refused[] = {
    {SW_E_FORMAT, "{{ [1, 'a']|sort }}", "sort of"},
    {SW_E_FORMAT, "{{ [none, none]|sort }}", "sort of"},
    {SW_E_FORMAT, "{{ [[1], [1]]|unique|list }}", "unique of a list"},
    {SW_E_FORMAT, "{{ '{\"a\": '|from_json }}", "JSON"},
    {SW_E_FORMAT, "{{ 1|from_json }}", "from_json of"},
    {SW_E_UNSUPPORTED, "{{ messages|sort(attribute='a.b') }}", "attribute"},
    {SW_E_UNSUPPORTED, "a\n b {% include 'x' %}", "T, line 2, column 7: \"include\""},
    {SW_E_UNSUPPORTED, "{{ n | pprint }}", "column 8: the filter pprint is not known"},
    {SW_E_UNSUPPORTED, "{{ n is upper }}", "the test upper is not known"},
    {SW_E_UNSUPPORTED, "{{ 'a'.zfill(3) }}", "the method zfill of text is not known"},
    {SW_E_UNSUPPORTED, "{{ lipsum() }}", "the function lipsum is not known"},
    {SW_E_UNSUPPORTED, "{{ ().__class__ }}", "the attribute __class__ is not known"},
    {SW_E_UNSUPPORTED, "{{ 1 < n < 9 }}", "a chain of comparisons"},
    {SW_E_UNSUPPORTED, "{{ '%s' % n }}", "text % values"},
    {SW_E_UNSUPPORTED, "{{ 'x'|safe + 'y' }}", "an operator on safe text"},
    {SW_E_UNSUPPORTED, "{{ '\303\244'|upper }}", "beyond ASCII"},
    {SW_E_UNSUPPORTED, "{% set s = o|items %}{{ s|list }}{{ s|list }}", "for the second time"},
    {SW_E_UNSUPPORTED, "{% set a = namespace(b=1) %}{% for x in [1] if a.b %}{% endfor %}",
     "a namespace in the condition"},
    {SW_E_UNSUPPORTED, "{% for i in [1] %}{% macro m() %}{% endmacro %}{% endfor %}",
     "a macro within"},
    {SW_E_UNSUPPORTED, "{{ 9223372036854775807123 }}", "this form of number"},
    {SW_E_UNSUPPORTED, "{{ 999999999999999999 * 10 * 10 }}", "beyond 64 bits"},
    {SW_E_FORMAT, "{{ raise_exception('no ' ~ n) }}", "refuses this conversation: no 7"},
    {SW_E_FORMAT, "{{ missing.x }}", "missing is undefined, so it has no \"x\""},
    {SW_E_FORMAT, "{{ 'a' + 1 }}", "+ between text and an integer"},
    {SW_E_FORMAT, "{% if n %}", "the template ends where elif should be"},
    {SW_E_FORMAT, "{{ 'a", "a string has no end"},
    {SW_E_FORMAT, "{% break %}", "no loop around it"},
    {SW_E_FORMAT, "{# ", "a comment has no end"},
    {SW_E_FORMAT, "{{ [1) }}", ") closes nothing"},
    {SW_E_FORMAT, "{{ missing|tojson }}", "undefined has no JSON"},
    {SW_E_FORMAT, "{{ 1 // 0 }}", "division by zero"},
    {SW_E_FORMAT, "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "has no such argument"},
};

static void check_refusal(sw_code code, const char *template, const char *given, const char *says)
{
    char *have = NULL;
    sw_err err = {0};
    size_t n = 0;
    sw_code rc = render(&have, &n, template, given, &err);

    if (rc != code || !strstr(err.text, says) || have)
        fail_msg("%.200s\nhave %d %s\nwant %d %s", template, rc, err.text, code, says);
}

static void refuses_with_line_and_column(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check_refusal(refused[i].code, refused[i].template, variables, refused[i].says);
}

static void bad_variables(void **state)
{
    (void)state;
    check_refusal(SW_E_FORMAT, "x", "[1]", "no JSON object");
    check_refusal(SW_E_FORMAT, "x", "{\"a\": 1, \"a\": 2}", "the key \"a\" is there twice");
    check_refusal(SW_E_FORMAT, "x", "{\"a\": ", "");
    check_refusal(SW_E_UNSUPPORTED, "x", "{\"a\": 92233720368547758070}", "beyond 64 bits");
}

/* Each of these would take all time, all memory or all of the stack. */
static void caps_hold(void **state)
{
    char nested[4096] = "{{ ";

    (void)state;
    check_refusal(SW_E_FORMAT, "{% for a in range(9999) %}{% for b in range(9999) %}"
                  "{% endfor %}{% endfor %}", "{}", "bytes of values");
    check_refusal(SW_E_FORMAT, "{% set r = range(9999) %}{% for a in r %}{% for b in r %}"
                  "{{ a }}{% endfor %}{% endfor %}", "{}", "steps");
    check_refusal(SW_E_FORMAT, "{% set s = namespace(x='abcdefgh') %}{% for i in range(60) %}"
                  "{% set s.x = s.x + s.x %}{% endfor %}", "{}", "bytes of text");
    check_refusal(SW_E_FORMAT, "{% set s = namespace(x='abcdefgh' * 100000) %}"
                  "{% for i in range(60) %}{{ s.x }}{% endfor %}", "{}", "bytes of output");
    check_refusal(SW_E_FORMAT, "{% set s = namespace(x=[]) %}{% for i in range(200) %}"
                  "{% set s.x = [s.x] %}{% endfor %}{{ s.x }}", "{}", "nested deeper");
    check_refusal(SW_E_FORMAT, "{% set s = namespace(x=[]) %}{% for i in range(90) %}"
                  "{% set s.x = [s.x, s.x] %}{% endfor %}{{ s.x == s.x }}", "{}", "steps");
    check_refusal(SW_E_FORMAT, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}",
                  "nested deeper");
    check_refusal(SW_E_FORMAT, "{{ range(200000) }}", "{}", "at most 100000");
    memset(nested + 3, '(', 60);
    check_refusal(SW_E_FORMAT, nested, "{}", "has no end");
    memset(nested + 3, '(', 900);
    check_refusal(SW_E_UNSUPPORTED, nested, "{}", "so many brackets");
    memcpy(nested, "{{ ", 3);
    for (int i = 0; i < 200; i++) memcpy(nested + 3 + 2 * i, "- ", 2);
    memcpy(nested + 403, "1 }}", 5);
    check_refusal(SW_E_UNSUPPORTED, nested, "{}", "nested so deep");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_jinja_does),
        cmocka_unit_test(refuses_with_line_and_column),
        cmocka_unit_test(bad_variables),
        cmocka_unit_test(caps_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
