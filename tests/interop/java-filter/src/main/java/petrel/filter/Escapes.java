package petrel.filter;

/** {@code \t \n \r \f \\ \1 \2}: what does not go into a line of a table. */
final class Escapes {
    private static final String NAMES = "tnrf\\12";
    private static final String MEANINGS = "\t\n\r\f\\\u0001\u0002";

    private Escapes() {
    }

    static String decode(String text) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            int name = c == '\\' && i + 1 < text.length() ? NAMES.indexOf(text.charAt(i + 1)) : -1;
            if (name >= 0) {
                out.append(MEANINGS.charAt(name));
                i++;
            } else {
                out.append(c);
            }
        }
        return out.toString();
    }

    static String encode(String text) {
        StringBuilder out = new StringBuilder();
        for (char c : text.toCharArray()) {
            int meaning = MEANINGS.indexOf(c);
            out.append(meaning >= 0 ? "\\" + NAMES.charAt(meaning) : String.valueOf(c));
        }
        return out.toString();
    }
}
