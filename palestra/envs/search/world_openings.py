"""How articles begin, and sentences that state no fact anybody is asked about.

Written as in `world_prose`.
"""

OPENINGS = {
    "person": """
{name} ({born} – {died}) was a {occupation} from {birthplace}.
{name} (born {born} in {birthplace}, died {died} in {deathplace}) was a {occupation}.
{name} was a {occupation}, born in {birthplace} on {born}.
{name}, {occupation}, was born on {born} in {birthplace} and died on {died} in {deathplace}.
{name} was a [noted|well-known|prolific|much discussed] {occupation} who was born on {born}.
Born in {birthplace} on {born}, {name} became one of the [better known|most original|most \
stubborn] {occupation_s} of {her} generation.
""",
    "land": """
{name} is a country whose capital is {capital}.
{name} is a [small|mountainous|sparsely settled|maritime] country; {her} seat of government is \
{capital}.
{name} became independent in {independent} and has {capital} as its capital.
""",
    "town": """
{name} is a town in {land}.
{name} is a [market|mill|harbour|garrison|cathedral] town in {land} with {population} inhabitants.
{name}, in {land}, is a town founded in {founded}.
With {population} inhabitants, {name} is one of the [quieter|livelier|older] towns of {land}.
""",
    "river": """
The {name} is a river in {land}, {length} kilometres long.
The {name} is a [slow|swift|shallow|winding] river of {land} that empties into {mouth}.
The river {name} runs for {length} kilometres through {land}.
""",
    "island": """
{name} is an island in {sea}.
{name} is a [rocky|windswept|wooded|volcanic] island of {area} square kilometres that belongs to \
{land}.
{name}, an island in {sea}, belongs to {land}.
""",
    "university": """
The {name} is a university in {town}.
The {name}, founded in {founded}, is [one of the older places of learning|a place of learning] in \
{town.land}.
The {name} is a university that was founded in {founded} by {founder}.
""",
    "company": """
{name} is a [former manufacturer|maker] of {product} with headquarters in {headquarters}.
{name} was founded in {founded} by {founder} and is known for {her} {product}.
{name} is a firm from {headquarters} that [makes|has long made] {product}.
""",
    "publisher": """
{name} is a publishing house in {headquarters}.
{name} is a publishing house founded in {founded} by {founder}.
{name} is an independent publisher of [fiction|novels|fiction and travel writing] with its seat in \
{headquarters}.
""",
    "orchestra": """
The {name} is an orchestra that plays in {hall} in {town}.
The {name}, founded in {founded}, is an orchestra based in {town}.
The {name} is a [symphony|professional|municipal] orchestra whose founder was {founder}.
""",
    "museum": """
The {name} is a museum of art in {town}.
The {name} is an art museum that opened in {opened}.
The {name} in {town} is housed in a building by {architect}.
""",
    "novel": """
{name} is a novel by {author}, published in {published}.
{name} is a novel of {pages} pages by {author}.
{name} is a [long|short|satirical|melancholy|historical] novel that {author} published in \
{published}.
First published in {published} by {publisher}, {name} is a novel by {author}.
""",
    "film": """
{name} is a film of {released} directed by {director}.
{name} is a [black-and-white|slow-moving|light-hearted|much praised] film by {director}.
{name} is a film directed by {director}, with music by {score}.
{name}, released in {released}, is a feature film that runs for {minutes} minutes.
""",
    "painting": """
{name} is a painting by {painter} from {painted}.
{name} is an oil painting that {painter} completed in {painted}.
{name} is a [large|small|narrow|celebrated] canvas by {painter}, kept at {museum}.
""",
    "composition": """
{name} is a [work|piece] for orchestra by {composer}.
{name} is an orchestral work in {key} by {composer}, first performed in {premiered}.
{name} is a composition by {composer} that lasts about {minutes} minutes.
""",
    "theorem": """
The {name} is a result about {topic} that {author} proved in {proved}.
In mathematics, the {name} is a statement about {topic}.
The {name}, due to {author}, is a result of the theory of {topic}.
""",
    "expedition": """
The {name} was a voyage of exploration led by {leader}.
The {name} of {began} was led by {leader}.
The {name} set out in {began} under the command of {leader}.
The {name} was a [scientific|privately financed|poorly equipped] expedition to {destination}.
""",
    "treaty": """
The {name} was an agreement on {topic} between {party} and {counterparty}.
The {name} was signed in {place} on {signed}.
The {name}, concluded between {party} and {counterparty}, settled a dispute over {topic}.
""",
    "festival": """
The {name} is a festival of {theme} held in {town} every {month}.
The {name} is a festival of {theme} founded by {founder}.
The {name}, first held in {first_held}, takes place every {month}.
""",
    "battle": """
The {name} was fought on {fought} near {near}.
The {name} was a battle in which {victor} defeated {loser}.
The {name} was a [short|bloody|confused|decisive] battle near {near}.
""",
    "award": """
The {name} is an award for {field}, established in {established}.
The {name} is given for {field} by {giver}.
The {name} is a [distinction|prize] for {field}; it was established in {established}.
""",
    "city": """
{name} is a city in {country}.
{name} is a city in {country} with a population of about {population}.
The city of {name} lies in {country}.
""",
    "country": """
{name} is a country in {continent}.
{name} is a country in {continent} with an area of {area} square kilometres.
{name} ({iso3}) is a country in {continent}.
""",
    "airport": """
{name} (IATA: {iata}, ICAO: {icao}) is an airport that serves {city}.
{name} is the airport of {city} in {city.country}.
{name} is an airport serving {city}, {city.country}.
""",
    "element": """
{name} is a chemical element with the symbol {symbol} and the atomic number {number}.
{name} (symbol {symbol}) is the chemical element with atomic number {number}.
{name} is a chemical element; {her} symbol is {symbol}.
""",
}

FILLERS = {
    "person": """
In {her} youth {s} had wanted to become [a doctor|a sailor|an actor|a priest|a lawyer].
{S} was known for [wearing only grey|walking great distances|never answering letters|a remarkable \
memory|a dry sense of humour].
A [biography|collection of letters|short memoir] appeared [ten|twenty|thirty] years after {her} \
death.
{S} suffered from [poor eyesight|a weak heart|bouts of fever|insomnia] all {her} life.
[Money|Politics|Religion|Fame] meant little to {him}.
{S} owned a [large library|small boat|house by the sea|collection of clocks|pack of dogs].
{Her} papers are kept in a [public archive|family vault|provincial library].
{S} kept a diary for most of {her} life, but [burned it|left it unfinished|never let anyone read \
it].
Little is known about {her} childhood[, and {s} seldom spoke of it|].
{Her} letters were [sold at auction|edited by a cousin|found in an attic] long after {her} death.
In {her} free time {s} was fond of [chess|beekeeping|sailing|mountain walks|playing cards|growing \
roses|amateur astronomy].
Friends described {him} as [shy|quick-tempered|generous|absent-minded|a brilliant talker|hard to \
please].
{S} spoke [three|four|five] languages and [travelled widely|read constantly|corresponded in all of \
them].
Contemporaries were divided over {her} merits[, and the quarrel has not quite died down|].
A street was later named after {him}.
{Her} early years were marked by [poverty|illness|frequent moves|the loss of {her} parents].
{S} rarely gave interviews.
A portrait of {him} [has been lost|hangs in a private collection|was destroyed in a fire].
{S} was said to work only [at night|before breakfast|standing up|in complete silence].
{Her} reputation faded soon after {her} death and recovered only [slowly|much later|in recent \
decades].
""",
    "land": """
The interior is [hilly|flat|thinly populated] and the coast is deeply indented.
Its railways were built [late|by foreign engineers|at great cost].
The climate is [mild|harsh|dry|changeable], with long [winters|summers].
Farming, fishing and [timber|wool|shipbuilding] were long the main trades.
Schooling has been free for generations, and several of the universities are well known.
Elections are held every [four|five] years.
The flag, three bars in pale colours, has been changed only once.
""",
    "town": """
Its [brewery|rope works|glassworks|salt works] closed long ago.
Every year a [race|fair|procession|regatta] fills the streets.
The old quarter was rebuilt after a [fire|flood|siege].
There is a weekly market [on Tuesdays|on Thursdays|on Saturdays], which draws farmers from the \
whole district.
The church tower, [never finished|struck by lightning twice|visible from far away], dominates the \
skyline.
A narrow-gauge railway once linked the town with the coast.
The local [cheese|cider|lace|pottery|honey] is sold well beyond the district.
The town hall has a [carved door|clock with only one hand|painted ceiling].
Winters are [mild|long|foggy], and the streets are quiet from early evening.
The former [barracks|tannery|grain store] now serves as a school.
""",
    "river": """
It is navigable only in its lower course.
In spring it often bursts its banks.
Its water is [clear|brown with peat|unusually cold], and [trout|eels|pike] are caught in it.
Several mills once stood along it[, of which two are left|].
A footpath follows it for most of the way.
Old maps give its name in [three|several] spellings.
A ferry still crosses it at the widest point.
""",
    "island": """
Seabirds breed on the [northern|western|eastern] cliffs.
There are few trees, and the wind seldom drops.
A lighthouse, [now unmanned|built of granite|painted red], stands on the southern cape.
The inhabitants live from [fishing|sheep|knitwear|seaweed] and, more and more, from visitors.
Landing is difficult in rough weather.
The old harbour silted up long ago.
A weather station is manned [all year|in summer only].
""",
    "university": """
The founder, a native of {founder.birthplace}, [paid for the first buildings|gave it a \
library|lived next door].
Lectures were at first given in [a former brewery|a convent|rented rooms].
It is known above all for [medicine|law|mathematics|engineering|history].
Students are called by a nickname that nobody can explain.
The botanical garden is open to everyone.
Every new rector plants a tree in the courtyard.
Its archives were moved [twice|three times] in troubled years.
""",
    "company": """
The founder came from {founder.birthplace}[ with little money|].
The first workshop was [a rented shed|a disused chapel|a stable].
Its catalogues are collected today.
A strike in the early years ended after [nine days|three weeks|two months].
Several of its early designs won medals at trade fairs.
The factory whistle could be heard all over the district.
The founder's desk is still shown to visitors.
Exports made up [a third|half|most] of its sales.
""",
    "publisher": """
Its covers, [plain grey|printed in two colours|without any picture], were easily recognised.
For a long time it was run by the founder's family.
It refused to publish [poetry|memoirs|cookery books] on principle.
Its archives were lost in a [fire|flood|bankruptcy].
Authors complained of late payments but seldom left.
The emblem of the house is [an owl|a lantern|a folded sail].
It still prints a small catalogue every autumn.
""",
    "orchestra": """
The founder had come from {founder.birthplace} as a young [violinist|cellist|oboist].
It began as a group of [amateurs|students|postal workers|theatre musicians].
Recordings were made from early on.
It tours [every spring|rarely|every second year].
Its archives contain hundreds of annotated scores.
Rehearsals are open to schools.
For years it had no permanent conductor.
The sound of its [strings|woodwind|brass] is often praised.
""",
    "museum": """
The architect was a graduate of {architect.alma_mater}.
Admission is free [on Sundays|on the first day of the month|for children].
The stairwell is decorated with [mosaics|tiles|plaster reliefs].
Part of the collection was hidden in a mine during the war.
A reading room on the top floor is open to scholars.
The roof has leaked ever since the building was finished.
Its catalogue has never been completed.
The garden behind the building is used for concerts.
""",
    "novel": """
It has been [out of print for years|reprinted many times|read in schools|banned twice].
The hero is [a lighthouse keeper|a runaway apprentice|a retired judge|a travelling dentist|a \
widow|a forger of banknotes].
It was written in [six weeks|four years|a single winter|a sanatorium|a rented room above a bakery].
The title is taken from [a proverb|a hymn|a nursery rhyme|an inn sign|a letter by the author's \
mother].
Much of it concerns [a lawsuit|an unhappy marriage|the building of a railway|a drought|a forged \
will|a long journey by sea].
[A sequel was planned but never written|An earlier draft was thrown away|Parts of it had appeared \
in a newspaper|It sold badly at first].
The author, a native of {author.birthplace}, drew on memories of home.
Critics [were cool at first|praised its style|complained of its length].
It tells the story of [two sisters|a family of millers|a failed inventor|a ship's doctor] and [an \
inheritance|a lost letter|a feud].
The manuscript is lost.
It was translated into [five|seven|eleven|twelve] languages.
The last chapter was [rewritten several times|left out of some editions|added in proof].
A first edition now fetches a high price.
Readers have long argued about its ending.
It is told [in letters|in the first person|by an unreliable narrator|backwards].
""",
    "film": """
The story concerns [a bank robbery|a travelling circus|a disputed inheritance|a schoolmistress|a \
missing train|two rival bakers].
The original negative was [lost in a fire|found in a cellar|sold for scrap].
[Much of the dialogue was improvised|It was shot without a script|The ending was changed late|Half \
the cast fell ill].
The director came from {director.birthplace}[, and it shows|].
It was made on a small budget.
The leading part was played by an amateur.
Only [two|three|four] prints are known to survive.
The censors cut [one scene|several minutes|the ending].
Critics admired the [photography|editing|sets], the public stayed away.
It has been restored and is shown [at festivals|from time to time].
The shooting was interrupted by [snow|rain|a strike|illness] for several weeks.
""",
    "painting": """
The brushwork is [loose|unusually fine|hasty in places].
The [sky|left half|lower edge] was [painted over|reworked] later.
[Postcards of it sell well|It was once used on a banknote|A copy hangs in the town hall|It is \
rarely lent out].
The light falls from the [left|right|back], as so often in this artist's work.
The painter, who had been trained by {painter.teacher}, worked on it for [months|two years|a whole \
summer].
The colours have [darkened|faded|kept their freshness].
It was [cleaned|relined|restored] after the war.
A preparatory drawing has been preserved.
Experts were long in doubt about the signature.
It was [once stolen|shown abroad only once|never exhibited in the artist's lifetime].
In the foreground [a dog|a boat|a woman with a basket|two children] can be seen.
The frame is not the original one.
""",
    "composition": """
It opens with [a solo for the clarinet|a drum roll|a hymn-like theme|muted strings].
The finale is built on [a march|a folk tune|a fugue|a single rhythm].
[Critics heard church music in it|It was a success from the first|Players consider it difficult|It \
was neglected for decades].
The composer was born in {composer.birthplace}[, and folk tunes from there can be heard in it|].
The score asks for [two harps|a large wind section|four horns|an off-stage trumpet].
The first audience [demanded an encore|was puzzled|left early].
It was [revised once|never revised|shortened for later performances].
It is [seldom|often|now regularly] played.
The slow movement is the best known part.
The autograph was thought lost until a copyist's heirs found it.
It has been recorded [twice|several times|only once].
""",
    "theorem": """
The author first announced it in a [letter|lecture|footnote].
[Physicists|Engineers|Programmers] have found a use for it as well.
The author was born in {author.birthplace}.
A shorter proof was found later.
It was long considered a curiosity and is now part of many textbooks.
The converse does not hold.
Its name comes from a picture that was used to explain the idea to students.
The original paper contained a gap, which was soon closed.
It is often given as an exercise in advanced courses.
Computers have since checked the proof line by line.
""",
    "expedition": """
[Dogs|Ponies|Mules|A balloon] had been taken along but proved of little use.
[Two|Three|Four] of the party kept diaries, which do not agree.
[A photographer|A painter|A botanist|A surgeon] was among those on board.
The leader, a graduate of {leader.alma_mater}, had prepared for it for years.
The journals were published [twenty years later|in three volumes|only in part].
[Storms|Ice|Scurvy|Contrary winds] delayed the party for weeks.
It brought back [plants|rock samples|bird skins|charts] that are still studied.
The newspapers followed it closely.
Relations on board were [strained|friendly|formal].
The results disappointed those who had hoped for gold.
A memorial stone recalls the departure.
""",
    "treaty": """
The negotiations had lasted for [months|two winters|nearly a year].
Neither side was satisfied.
The original is written in two languages.
It remained in force for decades.
A secret clause became known much later.
The table at which it was signed is still shown to visitors.
Newspapers of the time printed the full text.
""",
    "festival": """
In its first years it was held in a tent.
It was cancelled [once|twice] because of [floods|an epidemic|a lack of money].
Most performances are free.
Each year a poster is designed by a local artist.
Rooms are booked out months ahead.
It is organised by volunteers.
It closes with a procession of lanterns.
""",
    "battle": """
Fog made it hard to tell friend from foe.
It lasted [from dawn to dusk|only three hours|two days].
Both sides claimed afterwards to have been outnumbered.
A small chapel marks the place today.
Farmers still plough up bullets and buttons.
It did not decide the war.
Accounts by eyewitnesses contradict each other.
""",
    "award": """
It is not given every year.
The medal shows [an oak leaf|a rising sun|a hand holding a pen|an open door].
The jury meets in private.
Several winners are said to have given the money away.
The ceremony is held in [spring|autumn|December].
Nominations are kept secret for fifty years.
Twice the jury could not agree.
""",
    "city": """
It has grown rapidly over the last hundred years.
Its markets and its older streets attract visitors.
Several roads and rail lines meet here.
It is a centre of trade for the surrounding region.
Travellers have described it in many books.
Its inhabitants are proud of their [cooking|football|music].
""",
    "country": """
Travellers reach it by air and, in many cases, by land or sea.
It takes part in the work of many international organisations.
Its larger cities have grown quickly in recent decades.
Statistics about it are collected every year.
Maps of it can be bought in any good bookshop.
""",
    "airport": """
Scheduled flights connect it with other cities.
Taxis and buses wait in front of the terminal.
It is used by airlines as well as by private pilots.
Delays are most common in bad weather.
The codes of airports are used on tickets, in timetables and by air traffic control.
Those who collect such things photograph aircraft from the fence.
""",
    "element": """
Its properties are described in every handbook of chemistry.
Chemists learn its place in the periodic table early on.
It has several isotopes.
Samples of it are kept in many collections.
Its compounds have been studied for a long time.
As with other elements, its spectrum can be used to detect it.
""",
}
