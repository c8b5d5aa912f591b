"""Valid and invalid values of sasl.jaas.config."""

from __future__ import annotations

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

RIGHT = [
    (f'{PLAIN} required username="admin" user_alice="s;=/*x" ;', PLAIN, {"username": "admin", "user_alice": "s;=/*x"}),
    ("A required;", "A", {}),
    ("A REQUIRED x=y;", "A", {"x": "y"}),
    ("A required x='y z';", "A", {"x": "y z"}),
    ('"A" required "a b"="c";', "A", {"a b": "c"}),
    ("A required x = y;", "A", {"x": "y"}),
    ("A required\n  x=y\n  // z=q\n  /* a=b */ c=d;", "A", {"x": "y", "c": "d"}),
    ("A required / a lone one\n x=y;", "A", {"x": "y"}),
    ("A required x=y /\nz=q\n;", "A", {"x": "y"}),
    (r'A required x="\"q\" \\ \n \t \101 \400 \7 \x";', "A", {"x": '"q" \\ \n \t A \x200 \x07 x'}),
    ('A required x="open\n y=z;', "A", {"x": "open", "y": "z"}),
    ("A required x=a-b_c$d.e1;", "A", {"x": "a-b_c$d.e1"}),
    ("A required x=é;", "A", {"x": "é"}),
    ("A required x=y x=z;", "A", {"x": "z"}),
    ('A required x="";', "A", {"x": ""}),
    ("A required x=密码;", "A", {"x": "密码"}),
    ("A required x=y; // the end", "A", {"x": "y"}),
    ("A required x=y; /* never closed", "A", {"x": "y"}),
    ("org.x$Inner required a1=b;", "org.x$Inner", {"a1": "b"}),
]

WRONG = [
    "", "  ", "A", "A required", "A required x=y", "A wanted;", "A required x;", "A required x=;", "A required =y;",
    "A required x=1;", "A required x=-y;", "A required x=1abc;", "A required x==y;", "A required x:y;", ";",
    "1 required;", '"" required;', "A required x=y,z=q;", "A required x=.y;", "A 'required x=y;", "A required x=/y;",
    "A required x=\x85;", "A required x=y;; B required;",
]  # fmt: skip
