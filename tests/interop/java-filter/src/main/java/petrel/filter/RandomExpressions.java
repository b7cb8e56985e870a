package petrel.filter;

import java.util.Random;

/** Expressions of random shape; most of them compile. */
final class RandomExpressions {
    private static final String[] OPERATORS = {"=", "<>", ">", ">=", "<", "<="};
    private static final String[] SEARCHES = {"CONTAINS", "STARTSWITH", "ENDSWITH", "NOT CONTAINS", "not startswith", "NOT EndsWith"};
    private static final String[] PROPERTIES = {"i", "i", "n", "d", "s", "t", "b", "f", "big", "none", "neg", "x1", "$e", "_u"};
    private static final String[] NUMBERS = {"5", "0", "-5", "12", "3000000000", "5L", "2.5", "-2.5", "5.", ".5", "1e3", "+7", "- -5",
        "9223372036854775807", "2147483647", "-2147483648", "0.0"};
    private static final String[] STRINGS = {"'abc'", "'a'", "'c'", "''", "'5'", "'2.5'", "'true'", "'it''s'", "'x'"};
    private static final String[] BITS = {"(", ")", "NOT", "AND", ",", "IN", "IS", "'", "=", "-", "a", "1", "BETWEEN", "!", "--", "/**/"};

    private final Random random;

    RandomExpressions(Random random) {
        this.random = random;
    }

    String next() {
        String text = expression(random.nextInt(4));
        if (random.nextInt(8) == 0) {
            int at = random.nextInt(text.length() + 1);
            text = text.substring(0, at) + " " + one(BITS) + " " + text.substring(at);
        }
        return text;
    }

    private String expression(int depth) {
        if (depth <= 0) {
            return predicate(1);
        }
        switch (random.nextInt(6)) {
            case 0:
            case 1:
                return expression(depth - 1) + " AND " + expression(depth - 1);
            case 2:
            case 3:
                return expression(depth - 1) + " OR " + expression(depth - 1);
            case 4:
                return "NOT (" + expression(depth - 1) + ")";
            default:
                return "(" + expression(depth - 1) + ")" + (random.nextInt(4) == 0 ? " " + one(OPERATORS) + " " + operand(1) : "");
        }
    }

    private String predicate(int depth) {
        switch (random.nextInt(12)) {
            case 0:
                return operand(depth) + " " + one(SEARCHES) + " " + one(STRINGS);
            case 1:
                return operand(depth) + (random.nextBoolean() ? " NOT" : "") + " BETWEEN " + operand(0) + " AND " + operand(0);
            case 2:
                return one(PROPERTIES) + (random.nextBoolean() ? " NOT" : "") + " IN (" + one(STRINGS) + ", " + one(STRINGS) + ")";
            case 3:
                return operand(depth) + " IS " + (random.nextBoolean() ? "NOT " : "") + "NULL";
            case 4:
                return random.nextBoolean() ? one(PROPERTIES) : random.nextBoolean() ? "TRUE" : "FALSE";
            case 5:
                return (random.nextBoolean() ? "NOT " : "") + operand(depth) + " = " + operand(depth);
            default:
                return operand(depth) + " " + one(OPERATORS) + " " + operand(depth);
        }
    }

    private String operand(int depth) {
        switch (random.nextInt(depth > 0 ? 12 : 9)) {
            case 0:
                return one(STRINGS);
            case 1:
            case 2:
            case 3:
                return one(NUMBERS);
            case 9:
                return "-" + one(PROPERTIES);
            case 10:
                return "(" + predicate(depth - 1) + ")";
            case 11:
                return random.nextInt(3) == 0 ? "NULL" : random.nextBoolean() ? "TRUE" : "FALSE";
            default:
                return one(PROPERTIES);
        }
    }

    private String one(String[] choices) {
        return choices[random.nextInt(choices.length)];
    }
}
