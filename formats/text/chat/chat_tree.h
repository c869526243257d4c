/* chat_tree.h - a parsed chat template: nodes in one array that name each other by index.
 *
 * Index 0 is no node. `next` chains the elements of a list: statements of a body, arguments.
 */
#ifndef SW_FORMATS_TEXT_CHAT_CHAT_TREE_H
#define SW_FORMATS_TEXT_CHAT_CHAT_TREE_H

#include "formats/text/chat/chat_lexer.h"

typedef enum sw_chat_node_kind {
    /* expressions */
    SW_CHAT_N_CONST,  /* value */
    SW_CHAT_N_NAME,   /* text; as a parameter: a is its default */
    SW_CHAT_N_ATTR,   /* a.text */
    SW_CHAT_N_ITEM,   /* a[b] */
    SW_CHAT_N_SLICE,  /* a[b:c:d] */
    SW_CHAT_N_CALL,   /* a(b...) */
    SW_CHAT_N_ARG,    /* a, or text=a */
    SW_CHAT_N_FILTER, /* a|op(b...), text: its name */
    SW_CHAT_N_TEST,   /* a is op(b...), flag: is not */
    SW_CHAT_N_NOT,
    SW_CHAT_N_NEGATE,
    SW_CHAT_N_AND,
    SW_CHAT_N_OR,
    SW_CHAT_N_BINARY,  /* a op b */
    SW_CHAT_N_COMPARE, /* a op b */
    SW_CHAT_N_CONCAT,  /* a ~ b */
    SW_CHAT_N_CHOICE,  /* b if a else c */
    SW_CHAT_N_LIST,    /* a... , flag: a tuple */
    SW_CHAT_N_MAP,     /* a..., each an ARG whose b is the key */
    /* statements */
    SW_CHAT_N_DATA,   /* text */
    SW_CHAT_N_PRINT,  /* {{ a }} */
    SW_CHAT_N_IF,     /* if a: b, else: c */
    SW_CHAT_N_FOR,    /* for a... in b if e: c, else: d */
    SW_CHAT_N_SET,    /* set a = b; flag: set a, then the body b */
    SW_CHAT_N_MACRO,  /* macro text(a...): b */
    SW_CHAT_N_GENERATION, /* b */
    SW_CHAT_N_BREAK,
    SW_CHAT_N_CONTINUE
} sw_chat_node_kind;

typedef enum sw_chat_op {
    SW_CHAT_ADD, SW_CHAT_SUBTRACT, SW_CHAT_MULTIPLY, SW_CHAT_DIVIDE, SW_CHAT_FLOOR, SW_CHAT_MODULO,
    SW_CHAT_EQ, SW_CHAT_NE, SW_CHAT_LT, SW_CHAT_LE, SW_CHAT_GT, SW_CHAT_GE, SW_CHAT_IN,
    SW_CHAT_NOT_IN
} sw_chat_op;

typedef struct sw_chat_node {
    uint8_t kind; /* sw_chat_node_kind */
    uint8_t op;   /* sw_chat_op, or the index of a filter or test */
    bool flag;
    uint32_t at; /* offset in the source */
    int32_t a, b, c, d, e, next;
    sw_chat_text text;
    sw_chat_value value;
} sw_chat_node;

typedef struct sw_chat_tree {
    sw_chat_source source;
    sw_chat_node *nodes;
    int32_t n, room;
    int32_t body; /* the first statement */
} sw_chat_tree;

/* One pass over the tokens. */
typedef struct sw_chat_parser {
    sw_chat_tree *tree;
    const sw_chat_token *tokens;
    int64_t at;
    int depth, n_loops;
    bool is_inner; /* in a loop, a macro or the body of a set, where no macro may begin */
    sw_arena *arena;
    sw_err *err;
} sw_chat_parser;

/* The whole template. Everything lives in the arena. */
sw_code sw_chat_parse(sw_chat_tree *tree, sw_arena *arena, sw_err *err) SW_MUST_USE;

/* For the two halves of the parser. */
sw_code sw_chat_node_new(int32_t *out, sw_chat_parser *p, sw_chat_node_kind kind,
                         uint32_t at) SW_MUST_USE;
bool sw_chat_is_sign(const sw_chat_parser *p, const char *sign);
bool sw_chat_is_name(const sw_chat_parser *p, const char *name);
bool sw_chat_skip_sign(sw_chat_parser *p, const char *sign);
bool sw_chat_skip_name(sw_chat_parser *p, const char *name);
sw_code sw_chat_expect(sw_chat_parser *p, const char *sign) SW_MUST_USE;
/* At the token that comes next; the code is SW_E_UNSUPPORTED. */
sw_code sw_chat_unexpected(const sw_chat_parser *p, const char *instead);
/* with_choice: "x if y else z" is taken as well. */
sw_code sw_chat_parse_expression(int32_t *out, sw_chat_parser *p, bool with_choice) SW_MUST_USE;

/* Index in the evaluator's tables; -1: none of that name. */
int sw_chat_filter_index(sw_chat_text name);
int sw_chat_test_index(sw_chat_text name);

#endif
