"""Topics and answers with gaps, which are filled with plants, months and towns."""

PLANTS = (
    "tomatoes",
    "courgettes",
    "carrots",
    "beetroot",
    "leeks",
    "runner beans",
    "broad beans",
    "peas",
    "parsnips",
    "spinach",
    "kale",
    "chard",
    "radishes",
    "onions",
    "garlic",
    "sweetcorn",
    "pumpkins",
    "cucumbers",
    "peppers",
    "lettuces",
)
FRUIT = (
    "strawberries",
    "raspberries",
    "gooseberries",
    "blackcurrants",
    "rhubarb",
    "plums",
    "pears",
    "apples",
    "figs",
    "cherries",
)
TOOLS = (
    "hoe",
    "spade",
    "wheelbarrow",
    "pair of secateurs",
    "cold frame",
    "water butt",
    "garden fork",
    "dibber",
    "riddle",
    "trowel",
)
PESTS = (
    "slugs",
    "pigeons",
    "aphids",
    "flea beetles",
    "carrot flies",
    "cabbage whites",
    "vine weevils",
    "mice",
    "leaf miners",
    "red spiders",
)
SPRING = ("March", "April", "May")
HARVEST = ("July", "August", "September")

Talk = tuple[str, str, tuple[str, ...]]
"""A title, the first post, and answers. {thing}: the subject. {town}: where the writer of an answer
lives.
"""

CATEGORIES: tuple[tuple[str, str, tuple[str, ...], tuple[Talk, ...]], ...] = (
    (
        "Vegetables",
        "From seed to plate",
        PLANTS,
        (
            (
                "When do you sow {thing}?",
                (
                    "Last year I was too early and the frost took half of them. When do you sow "
                    "{thing} where you are?"
                ),
                (
                    "Not before the middle of {spring} here in {town}.",
                    "I start them indoors in {spring} and move them out when the nights are warm.",
                    "I sow twice, two weeks apart. One of the two always works.",
                    "The packet says {spring}, and here in {town} the packet is right.",
                ),
            ),
            (
                "Yellow leaves on my {thing}",
                (
                    "The lower leaves of my {thing} turn yellow, the upper ones are fine. Water "
                    "or food?"
                ),
                (
                    "Mine did that in {town} until I stopped watering every day.",
                    "A feed of nettle tea put it right within a week.",
                    "Lower leaves only? Take them off and do not worry.",
                ),
            ),
            (
                "How far apart do you plant {thing}?",
                "Every book says something else. What works for your {thing} in a small bed?",
                (
                    "A hand and a half, and the same between the rows.",
                    "I plant them {number} cm apart. Closer than that and they stay small.",
                    "Wider than you think. The bed in {town} taught me that.",
                ),
            ),
        ),
    ),
    (
        "Fruit and berries",
        "Bushes, canes and trees",
        FRUIT,
        (
            (
                "Pruning {thing} for the first time",
                (
                    "I took over a plot with old {thing}. Nobody has pruned them for years. Where "
                    "do I begin?"
                ),
                (
                    "Take out what is dead, then wait a year and look again.",
                    "In {town} I prune in winter, on a dry day.",
                    "Never more than a third at once.",
                ),
            ),
            (
                "My {thing} bear next to nothing",
                (
                    "Plenty of leaves, hardly any fruit. The {thing} stand in half shade. Should "
                    "I move them?"
                ),
                (
                    "Half shade is enough here in {town}. I would feed them first.",
                    "How old are they? Mine took {number} years.",
                    "Frost on the blossom, perhaps. Cover them next {spring}.",
                ),
            ),
        ),
    ),
    (
        "Pests and diseases",
        "Who eats it before we do",
        PESTS,
        (
            (
                "What do you do about {thing}?",
                "The {thing} have found my plot. I would rather not spray. What works for you?",
                (
                    "A net, put up before they come. In {town} that is {spring}.",
                    "I pick them off in the evening. It takes {number} minutes a day.",
                    "Grow a little more than you need and let them have it.",
                    "Put out a bowl of water for the birds. They do the rest.",
                ),
            ),
            (
                "First {thing} of the year",
                "I saw the first {thing} this morning. They are early, I think. Anybody else?",
                (
                    "Not here in {town}, not yet.",
                    "Since last week, on everything that is green.",
                    "In my notes they come in {spring} every year.",
                ),
            ),
        ),
    ),
    (
        "Tools and sheds",
        "Handles, blades and roofs",
        TOOLS,
        (
            (
                "Which {thing} would you buy again?",
                (
                    "My {thing} has come to its end after {number} years. Which one would you buy "
                    "again?"
                ),
                (
                    "The cheapest that has a wooden handle. Handles can be replaced.",
                    "An old one from a market. Mine from {town} is older than I am.",
                    "Borrow two or three first. It depends on your height.",
                ),
            ),
            (
                "How do you look after your {thing}?",
                "I leave my {thing} in the shed all winter and it shows. What do you do in autumn?",
                (
                    "Linseed oil on the wood and a dry corner.",
                    "Clean it, dry it, hang it up. Ten minutes in {harvest}.",
                    "Nothing at all, and mine has lasted {number} years in {town}.",
                ),
            ),
        ),
    ),
    (
        "In the kitchen",
        "What to do with all of it",
        (*PLANTS[:10], *FRUIT[:5]),
        (
            (
                "Too many {thing}",
                (
                    "We have eaten {thing} for {number} days in a row. What else can be done with "
                    "them?"
                ),
                (
                    "Give them away. The whole street in {town} has mine.",
                    "They freeze well if you cut them first.",
                    "Chutney, with plenty of ginger.",
                    "A soup that keeps for a week.",
                ),
            ),
            (
                "How do you store {thing} over winter?",
                "No cellar here, only a garage. How do you keep {thing} until spring?",
                (
                    "In a box of dry sand. They last until {spring}.",
                    "In jars. It is one long day in {harvest} and then it is done.",
                    "A garage is good enough in {town}, away from the door.",
                ),
            ),
        ),
    ),
    (
        "Swap and share",
        "Seeds, cuttings and spare plants",
        (*PLANTS, *FRUIT),
        (
            (
                "Spare {thing} to give away",
                "I have {number} young {thing} too many. Free to anybody who comes for them.",
                (
                    "I would take three. Are they still there?",
                    "If only {town} were nearer.",
                    "Thank you, they are in the ground already.",
                ),
            ),
            (
                "Looking for seeds of {thing}",
                "Does anybody have seeds of an old kind of {thing}? I can offer kale in return.",
                (
                    "I save mine every year. I will put some in the post from {town}.",
                    "Ask beatrix, she has a whole drawer of them.",
                ),
            ),
        ),
    ),
)

WELCOME = (
    "Read this first",
    (
        "Be kind, say where you garden, and put one question into one topic. Photographs are "
        "welcome. The moderator is beatrix."
    ),
)
MEETING = (
    "Open gardens in June",
    (
        "Six of us open their gardens on Sunday 21 June from 10 to 16 o'clock. The list of "
        "addresses will be sent round in May."
    ),
)
